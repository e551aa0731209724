//! Pools of external worker processes for a Rust host.
//!
//! Thin for now: what runs and holds processes is [`custody`]; pools, calls and loops stand on it.
#![forbid(unsafe_code)]

pub mod value;

pub use snakepit_custody as custody;
