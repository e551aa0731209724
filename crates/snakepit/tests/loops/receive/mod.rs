//! What a loop receives, and when.

mod backlog;
mod queued_calls;
mod worker_shortage;
