//! Where the answer of a sample comes from.
//!
//! Owns the calls to pools and to the host's own code. Does not know whether an answer is right.
//!
//! - `responder`: a pool, the handler of a loop, or an async function.
//! - `pool_caller`: calls to a pool, which calls are repeated, and which errors end the evaluation.
//! - `sample_failure`: why a sample has no score.
//! - `answer_json`: converts the answer of a worker to JSON.

mod answer_json;
mod pool_caller;
mod responder;
mod sample_failure;

pub(crate) use pool_caller::{PoolCaller, PoolQuestion};
pub use responder::Responder;
pub(crate) use responder::{AnswerSource, DEFAULT_TIMEOUT, with_arguments};
pub(crate) use sample_failure::{SampleFailure, bounded};
