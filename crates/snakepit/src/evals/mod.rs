//! Evaluations: how good the answers of a pool's commands are, and how sure that is.
//!
//! ```text
//! Dataset ─► Evaluation (experiments × samples) ─► a pool's command ─► Evaluator ─► Record ─► Journal ─► Report
//!                 └── or through mailboxes: Correspondence ─► EvalLoop ─► replies ──────────────┘
//! ```
//!
//! - [`Dataset`] is what is asked, [`Evaluator`] how an answer is judged, [`Experiment`] who is asked and how.
//! - [`Record`] is what came of one sample in one experiment. An error or a timeout is a record, too.
//! - [`Journal`] keeps records in a file, one line each, so that an evaluation that was killed goes on where it was.
//! - [`Report`] is a pure function of data set, plan and records: whoever was killed in between, it is the same.
//! - [`Evaluation`] asks directly: a pool, or whoever else answers ([`Responder`]); [`EvalLoop`] does the same for samples that come through a mailbox, and
//!   [`Correspondence`] sends them there and collects what comes back.

mod answers;
mod asking;
mod calling;
mod correspondence;
mod dataset;
mod error;
mod eval_loop;
mod evaluation;
mod evaluator;
mod function;
mod journal;
mod plan;
mod record;
mod report;
mod responder;
mod shorthand;
pub mod stats;

pub use correspondence::Correspondence;
pub use dataset::{Dataset, Sample};
pub use error::EvalError;
pub use eval_loop::{EvalLoop, EvalRequest};
pub use evaluation::{Evaluation, Progress};
pub use evaluator::{Evaluator, Judgement};
pub use function::{EvaluatorFunction, IntoJudgement};
pub use journal::{Found, Journal};
pub use plan::{Experiment, Plan};
pub use record::{Outcome, Record, Stage, Tokens};
pub use report::{Comparison, Counts, Methods, Report, Summary, Unscored};
pub use responder::Responder;
