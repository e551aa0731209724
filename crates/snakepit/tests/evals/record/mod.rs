//! Journals of evaluations.

mod journal;
