//! Pools as their users hold them.

mod status;
