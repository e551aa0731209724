//! Where calls wait for a worker: order and bounds, sessions and batches.

mod adaptive_concurrency;
mod batch_deaths;
mod batch_results;
mod batch_workers;
mod batches;
mod memory;
mod scheduling;
mod sessions;
