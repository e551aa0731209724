//! A worker while it serves, as its host sees it.
//!
//! Owns the handle of a worker's process, its exit, and the callers that wait for it. It must not know how the process was
//! made, nor what it serves.
//!
//! `worker_process` (what users hold) → `worker_state` (what handles and the keeper's thread share) → `exit`.

pub(crate) mod exit;
pub(crate) mod worker_process;
pub(crate) mod worker_state;
