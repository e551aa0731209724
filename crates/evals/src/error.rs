//! The errors that prevent or end an evaluation. A problem with one sample is a record, not an error.

use std::path::PathBuf;
use std::sync::Arc;

use crate::CallError;

/// The reason why an evaluation cannot start or continue.
///
/// ```
/// use snakepit::evals::{Dataset, EvalError};
///
/// match Dataset::parse(r#"{"id": "one", "expected": 3}"#) {
///     Ok(dataset) => println!("{} samples", dataset.samples().len()),
///     Err(EvalError::Sample { line, reason }) => eprintln!("line {line}: {reason}"),
///     Err(error) => eprintln!("{error}"),
/// }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// A file cannot be read or written.
    #[error("cannot {verb} {}", path.display())]
    File {
        /// What failed: `read`, `write`, ….
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// A line of a data set is not a sample.
    #[error("line {line} of the data set: {reason}")]
    Sample {
        /// The number of the line, counted from 1.
        line: usize,
        /// What is wrong with the line.
        reason: String,
    },
    /// A data set has no samples.
    #[error("the data set has no samples: write one JSON object with an input per line")]
    Empty,
    /// An evaluator cannot be used.
    #[error("{what} is not an evaluator: {reason}")]
    Evaluator {
        /// The evaluator as the user wrote it.
        what: String,
        /// The reason.
        reason: String,
    },
    /// An experiment cannot be used.
    #[error("experiment {name}: {reason}")]
    Experiment {
        /// The name of the experiment.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The checkpoint belongs to another plan.
    #[error("{} is the checkpoint of another evaluation: {reason}; use another file, or remove this one", path.display())]
    OtherCheckpoint {
        /// The file.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
    /// Another version of Snakepit wrote the checkpoint, which is left unchanged.
    #[error(
        "the checkpoint {} has format {found}, and this program reads format {ours}: update this program, or use another \
         checkpoint",
        path.display()
    )]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// The format of the checkpoint.
        found: u32,
        /// The format that this version reads.
        ours: u32,
    },
    /// The checkpoint holds an unfinished evaluation, which must be resumed or removed.
    #[error("{} holds an unfinished evaluation: {done} of {all} results; resume it, or remove the file", path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// The number of results in the file.
        done: usize,
        /// The number of results that the evaluation needs.
        all: usize,
    },
    /// A line of the checkpoint before the last is damaged.
    #[error("line {line} of the checkpoint {} cannot be read: {reason}; remove the line to ask its sample again, or the file to start over", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// Another process is writing the checkpoint.
    #[error("another evaluation writes {}: wait for its end, or use another checkpoint", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Calls fail for a reason that is unrelated to the sample.
    #[error("experiment {experiment} cannot continue")]
    Call {
        /// The name of the experiment.
        experiment: String,
        /// The error of the call.
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
