//! One worker, from its start to its death.

mod blocked_event_loop;
mod end;
mod start;
mod warm_up;
