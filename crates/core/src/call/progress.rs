//! The progress of a call: what its worker reports, where the call is, and how it ended.

use std::sync::Arc;

use super::batch::BatchMember;
use super::lease::Holder;
use super::{CallError, QueueKey};
use crate::value::Encoded;

/// The progress of a call, as its worker reports it.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// The share that is done, between 0 and 1, if known.
    pub fraction: Option<f64>,
    /// A text for people.
    pub text: Option<String>,
}

/// Where a call is.
#[derive(Clone, Debug)]
pub(crate) enum CallPlace {
    Queued(QueueKey),
    With(Arc<dyn Holder>),
    /// At a worker, as a member of a batch.
    InBatch(Arc<BatchMember>),
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum CallEnd {
    /// The value. For a stream, the mark that it is complete.
    Value(Encoded),
    Failed(CallError),
    /// The worker is gone, and its autopsy says why. Of calls that travelled together, `started` is how many were
    /// started, if known.
    Lost {
        holder: Arc<dyn Holder>,
        started: Option<usize>,
    },
}
