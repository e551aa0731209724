//! One worker, from its start to its death.

mod blocked_event_loop;
mod deaths;
mod error_output;
mod liveness;
mod output;
mod sigstop;
mod start;
mod task_stacks;
mod warm_up;
