//! Why an evaluation cannot start, or cannot go on. What goes wrong with one sample is a record, not an error.

use std::path::PathBuf;
use std::sync::Arc;

use crate::CallError;

/// Why an evaluation cannot start, or cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// A file cannot be read or written.
    #[error("cannot {verb} {}", path.display())]
    File {
        /// `read`, `write`, ….
        verb: &'static str,
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// A line of a data set is no sample.
    #[error("line {line} of the data set: {reason}")]
    Sample {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A data set has no samples.
    #[error("the data set has no samples: write one JSON object with an input per line")]
    Empty,
    /// An evaluator cannot be used.
    #[error("{what} is no evaluator: {reason}")]
    Evaluator {
        /// As it was written.
        what: String,
        /// Why not.
        reason: String,
    },
    /// An experiment cannot be used.
    #[error("experiment {name}: {reason}")]
    Experiment {
        /// Its name.
        name: String,
        /// Why not.
        reason: String,
    },
    /// The checkpoint belongs to another plan.
    #[error("{} is the checkpoint of another evaluation: {reason}", path.display())]
    OtherCheckpoint {
        /// The file.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
    /// The checkpoint holds an unfinished evaluation, which must be resumed or removed.
    #[error("{} holds an unfinished evaluation: {done} of {all} results", path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// How many results it has.
        done: usize,
        /// How many it should have.
        all: usize,
    },
    /// The checkpoint is damaged before its end.
    #[error("line {line} of the checkpoint {} cannot be read: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Why not.
        reason: String,
    },
    /// Another process writes the checkpoint.
    #[error("another evaluation writes {}: wait for its end, or use another checkpoint", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Calls fail, whatever the sample.
    #[error("experiment {experiment} cannot go on")]
    Call {
        /// Its name.
        experiment: String,
        /// Why.
        #[source]
        source: Box<CallError>,
    },
    /// A mailbox failed.
    #[error("the evaluation's mailbox failed")]
    Mailbox(#[from] crate::mailbox::MailboxError),
}

impl EvalError {
    pub(crate) fn file(verb: &'static str, path: &std::path::Path, source: std::io::Error) -> Self {
        Self::File { verb, path: path.to_owned(), source: Arc::new(source) }
    }
}
