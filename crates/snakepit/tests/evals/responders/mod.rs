//! Where answers come from.

mod responder;
mod worker_deaths;
