//! Everything that travels between a Snakepit host and its workers, as `spec/wire.md` describes it.
//!
//! This crate knows no runtime, no socket, no pool and no call. The crate `snakepit` re-exports the parts that users
//! need. The modules, in the order in which data passes through them:
//!
//! - [`value`]: values and their bytes, which are the payload of frames;
//! - [`message`]: what the payload of each kind of frame says;
//! - [`frame`]: the header of a frame;
//! - `outbox.rs`: frames that wait to be written ([`Outbox`]);
//! - `terminal_text.rs`: makes foreign text safe to show ([`harmless()`]).
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod frame;
pub mod message;
mod outbox;
mod terminal_text;
pub mod value;

pub use outbox::Outbox;
pub use terminal_text::{harmless, is_obeyed};

#[cfg(test)]
mod tests {
    mod errors;
}
