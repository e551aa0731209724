//! What several commands share.

mod target;
mod worker_output;
