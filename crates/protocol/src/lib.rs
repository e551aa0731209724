//! What travels between a Snakepit host and its workers, as `spec/wire.md` describes it.
//!
//! Knows no runtime, no socket, no pool and no call. Users get what they need of it from the crate `snakepit`. In the order in
//! which data passes them:
//!
//! - [`value`]: values and their bytes, which are the payload of frames;
//! - [`frame`]: the header of a frame;
//! - `outbox.rs`: frames that wait to be written ([`Outbox`]);
//! - `harmless.rs`: makes foreign text safe to show ([`harmless()`]).
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod frame;
mod harmless;
mod outbox;
pub mod value;

pub use harmless::{harmless, is_obeyed};
pub use outbox::Outbox;
