//! `snakepit exec`.

mod errors;
mod job_signals;
mod orphans;
mod report;
mod terminal;
