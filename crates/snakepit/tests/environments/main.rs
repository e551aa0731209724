//! The Python that workers run with: found, made, shared and kept; and what they are told of the hardware.

mod building;
mod hardware;
mod interpreters;
mod keeping;
mod launchers;
mod packages;
#[cfg(all(feature = "http", feature = "stdio"))]
mod programs;
#[path = "../support/mod.rs"]
mod support;
mod uv;
