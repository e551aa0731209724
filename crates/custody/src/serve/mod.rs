//! A worker while it serves, as its host sees it.
//!
//! Owns the handle of a worker's process, its exit, and the futures that wait for the exit. It must not know how the
//! process was created, nor what it serves.
//!
//! `worker_process` (the handle for users) → `worker_state` (the state that handles and the keeper's thread share) →
//! `exit`.

pub(crate) mod exit;
pub(crate) mod worker_process;
pub(crate) mod worker_state;
