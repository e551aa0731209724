//! Calls of one command that are gathered and sent to a worker together.

mod calls;
mod deaths;
mod results;
mod workers;
