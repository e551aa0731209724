//! What travels with a call: its arguments, and the options that most calls do not have.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Chain, Portion};
use crate::telemetry::TraceContext;
use crate::value::Encoded;

/// The arguments of a call.
#[derive(Debug)]
pub enum Input {
    /// Of one call.
    One(Encoded),
    /// Of many calls of one command, which travel together and have their own outcomes.
    Many(Vec<Encoded>),
}

/// What most calls do not have.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) session: Option<Arc<str>>,
    /// The session does not expire while this lives.
    pub(crate) session_in_use: Option<Arc<()>>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The first credit of a stream.
    pub(crate) stream: Option<Portion>,
    pub(crate) chain: Option<Arc<Chain>>,
    /// What the caller said about its trace, as long as nobody has looked at it.
    pub(crate) trace_headers: Option<Box<TraceHeaders>>,
    pub(crate) trace: Option<Arc<TraceContext>>,
    /// Of many calls that travel together and have traces of their own: one for each.
    pub(crate) traces: Vec<Option<Arc<TraceContext>>>,
}

/// `traceparent` and `tracestate`, unchecked.
#[derive(Debug, Default)]
pub(crate) struct TraceHeaders {
    pub(crate) parent: Option<String>,
    pub(crate) state: Option<String>,
}

impl Extras {
    /// Whether there is nothing but a trace, so that the call may travel with others.
    pub(crate) fn is_only_trace(&self) -> bool {
        let Self { session, session_in_use: _, metadata, stream, chain, trace_headers: _, trace: _, traces } =
            self;
        session.is_none() && metadata.is_empty() && stream.is_none() && chain.is_none() && traces.is_empty()
    }
}
