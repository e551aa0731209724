//! Workers that speak spec/wire.md over a socket.

mod reader;
mod stacks;
mod task_stacks;
