//! The adapter for workers that speak spec/wire.md over a socket.

mod decoding_cost;
mod protocol;
