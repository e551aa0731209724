//! The engine as a whole: its configuration and its lifecycle.

mod blocking;
#[cfg(feature = "config")]
mod config;
mod handle;
mod lifecycle;
#[path = "../support/mod.rs"]
mod support;
