//! `snakepit exec`.

mod errors;
mod exit_status;
mod orphans;
mod signals;
mod terminal;
