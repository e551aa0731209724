//! Workers that speak spec/wire.md over a socket.

mod reader;
mod task_stacks;
