//! How far a call is: what its worker reports, where the call is, and how it ended.

use std::sync::Arc;

use super::batch::BatchMember;
use super::lease::Holder;
use super::{CallError, QueueKey};
use crate::value::Encoded;

/// How far a call is, as its worker tells.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// Between 0 and 1, if it can be said.
    pub fraction: Option<f64>,
    /// For a person.
    pub text: Option<String>,
}

/// Where a call is.
#[derive(Clone, Debug)]
pub(crate) enum CallPlace {
    Queued(QueueKey),
    With(Arc<dyn Holder>),
    /// At a worker, together with others.
    InBatch(Arc<BatchMember>),
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum CallEnd {
    /// Its value; of a stream, the mark that it is complete.
    Value(Encoded),
    Failed(CallError),
    /// Its worker is gone; the autopsy says why. Of many calls that travelled together: how many were started.
    Lost {
        holder: Arc<dyn Holder>,
        started: Option<usize>,
    },
}
