//! The Python environments of workers: found, built, shared and cached; and what workers learn about the hardware.

mod build;
mod build_steps;
mod cache;
mod hardware;
mod launchers;
mod packages;
#[cfg(all(feature = "http", feature = "stdio"))]
mod programs;
mod python;
#[path = "../support/mod.rs"]
mod support;
