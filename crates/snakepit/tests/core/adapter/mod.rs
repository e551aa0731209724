//! What every adapter shares: the calls that workers hold, and the tools of the host.

mod held_calls;
mod host_tools;
