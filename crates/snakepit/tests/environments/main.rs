//! The Python environments of workers: found, built, shared and cached; and what workers learn about the hardware.

mod building;
mod cache;
mod hardware;
mod interpreters;
mod launchers;
mod packages;
#[cfg(all(feature = "http", feature = "stdio"))]
mod programs;
#[path = "../support/mod.rs"]
mod support;
mod uv;
