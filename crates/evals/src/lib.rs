//! Evaluations: how good the answers of a pool's commands are, and how certain the result is.
//!
//! ```text
//! Dataset ─► Evaluation (experiments × samples) ─► Responder ─► Evaluator ─► SampleRecord ─► EvalJournal ─► EvalReport
//!                 └── or through mailboxes: RemoteEvaluation ─► EvalLoop ─► replies ──────────┘
//! ```
//!
//! The folders follow the path of a sample:
//!
//! - `plan`: what is evaluated. An [`EvalPlan`] runs the samples of a [`Dataset`] in each [`Experiment`].
//! - `responders`: where answers come from. A [`Responder`] is a pool, the handler of a loop, or an async function.
//! - `evaluators`: how an answer is judged. An [`Evaluator`] turns an answer into a [`Judgement`].
//! - `run`: how a sample becomes a record. An [`Evaluation`] asks directly. A [`RemoteEvaluation`] sends samples
//!   through a mailbox to an [`EvalLoop`].
//! - `record`: what is kept. A [`SampleRecord`] is the result of one sample in one experiment, including errors and
//!   timeouts. The [`EvalJournal`] keeps the records in a file, so that a killed evaluation can be resumed.
//! - `report`: what the records mean. An [`EvalReport`] is a pure function of the plan and the records, so a resumed
//!   evaluation produces the same report.
//! - [`stats`]: how certain the numbers of a report are.
//!
//! The crate knows nothing of configuration files or of the program. Users depend on the crate `snakepit`, which
//! re-exports this crate as `snakepit::evals`.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod evaluators;
mod plan;
mod record;
mod report;
mod responders;
mod run;
pub mod stats;

pub use error::EvalError;
pub use evaluators::{Evaluator, EvaluatorFunction, IntoJudgement, Judgement};
pub use plan::{Dataset, EvalPlan, Experiment, Sample};
pub use record::{EvalJournal, JournalContents, SampleOutcome, SampleRecord, SampleStage, Tokens};
pub use report::{
    EvalReport, ExperimentComparison, ExperimentSummary, Methods, OutcomeCounts, Unscored, UnscoredKind,
};
pub use responders::Responder;
pub use run::{EvalLoop, EvalProgress, EvalRequest, Evaluation, RemoteEvaluation};

use snakepit_core::{CallError, RemoteErrorKind, error_text, pool};
use snakepit_custody as custody;
use snakepit_engine::Snakepit;
use snakepit_loops as loops;
use snakepit_mailbox as mailbox;
use snakepit_protocol::value::{self, Value};

#[cfg(test)]
mod tests {
    mod errors;
    mod plans;
}
