//! Where calls wait for a worker: order and bounds, sessions and batches.

mod batch;
mod memory;
mod outcomes;
mod scheduler;
mod session;
