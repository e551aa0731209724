//! What is kept of an evaluation.
//!
//! Owns the format of records and of their file. Does not know where answers or judgements come from.
//!
//! - `sample_record`: the result of one sample in one experiment.
//! - `journal`: the records of an evaluation, kept in a file.

mod journal;
mod sample_record;

pub use journal::{EvalJournal, JournalContents};
pub(crate) use sample_record::opened;
pub use sample_record::{SampleOutcome, SampleRecord, SampleStage, Tokens};
