//! What few calls have beside their arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Chain, Portion};
use crate::telemetry::TraceContext;

/// The options that most calls do not have.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) session: Option<Arc<str>>,
    /// Keeps the session from expiring.
    pub(crate) session_in_use: Option<Arc<()>>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The first credit of a stream.
    pub(crate) stream: Option<Portion>,
    pub(crate) chain: Option<Arc<Chain>>,
    /// The trace headers that the caller set, until they are checked.
    pub(crate) trace_headers: Option<Box<TraceHeaders>>,
    pub(crate) trace: Option<Arc<TraceContext>>,
    /// For calls that travel together and have traces of their own: one entry for each call.
    pub(crate) traces: Vec<Option<Arc<TraceContext>>>,
}

/// `traceparent` and `tracestate`, unchecked.
#[derive(Debug, Default)]
pub(crate) struct TraceHeaders {
    pub(crate) parent: Option<String>,
    pub(crate) state: Option<String>,
}

impl Extras {
    /// Reports whether a trace is the only option. Such a call may travel with others.
    pub(crate) fn is_only_trace(&self) -> bool {
        let Self { session, session_in_use: _, metadata, stream, chain, trace_headers: _, trace: _, traces } =
            self;
        session.is_none() && metadata.is_empty() && stream.is_none() && chain.is_none() && traces.is_empty()
    }
}
