//! When the next worker may start.

mod crash_loops;
mod degraded_pools;
