//! A run from its start to its end.

mod handle;
mod open_runs;
