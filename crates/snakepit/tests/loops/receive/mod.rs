//! What a loop receives, and when.

mod backlog;
mod worker_shortage;
