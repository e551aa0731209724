//! Evaluations: how good the answers of a pool's commands are, and how sure that is.
//!
//! ```text
//! Dataset ─► Evaluation (experiments × samples) ─► a pool's command ─► Evaluator ─► Record ─► Journal ─► Report
//!                 └── or through mailboxes: Correspondence ─► EvalLoop ─► replies ──────────────┘
//! ```
//!
//! The folders follow a sample:
//!
//! - `plan`: what is evaluated. An [`EvalPlan`] runs the samples of a [`Dataset`] in each [`Experiment`].
//! - `answer`: who answers. A [`Responder`] is a pool, the handler of a loop, or an async function.
//! - `judge`: how an answer is judged. An [`Evaluator`] makes a [`Judgement`] of it.
//! - `run`: from a sample to its record. An [`Evaluation`] asks directly; a [`RemoteEvaluation`] sends samples through a mailbox to an [`EvalLoop`].
//! - `record`: what is kept. A [`SampleRecord`] is the result of one sample in one experiment, be it an error or a timeout; the [`EvalJournal`] is a file
//!   of them, so that a killed evaluation can be resumed.
//! - `report`: what the records mean. An [`EvalReport`] is a pure function of plan and records, so that a resumed evaluation has the same one.
//! - [`stats`]: how sure the numbers of a report are.
//!
//! The crate knows nothing of configuration files and of the program. Users depend on the crate `snakepit`, which shows this one as
//! `snakepit::evals`.
#![forbid(unsafe_code)]

mod answer;
mod error;
mod judge;
mod plan;
mod record;
mod report;
mod run;
pub mod stats;

pub use answer::Responder;
pub use error::EvalError;
pub use judge::{Evaluator, EvaluatorFunction, IntoJudgement, Judgement};
pub use plan::{Dataset, EvalPlan, Experiment, Sample};
pub use record::{EvalJournal, JournalContents, SampleOutcome, SampleRecord, SampleStage, Tokens};
pub use report::{EvalReport, ExperimentComparison, ExperimentSummary, Methods, OutcomeCounts, Unscored};
pub use run::{EvalLoop, EvalProgress, EvalRequest, Evaluation, RemoteEvaluation};

use snakepit_core::{CallError, RemoteErrorKind, causes, pool};
use snakepit_custody as custody;
use snakepit_engine::Snakepit;
use snakepit_loops as loops;
use snakepit_mailbox as mailbox;
use snakepit_protocol::value::{self, Value};
