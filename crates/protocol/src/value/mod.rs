//! Values that travel between a host and its workers, and their bytes.
//!
//! Owns the kinds of values in `spec/wire.md` and how they are written and read: [`Value`] holds one of any kind,
//! [`Encoded`] holds its bytes, [`Args`] the arguments of a call. Knows nothing of frames, sockets or calls.
//!
//! Any `T: Serialize` can be sent and any `T: DeserializeOwned` received. As in JSON, structs are maps, tuples are lists,
//! `Option` and `()` are nil, and enums are tagged by the name of their variant. Unlike JSON there are byte strings
//! ([`Blob`]), integers of any size ([`BigInt`], and `i128` or `u128` as they are) and date-times ([`DateTime`],
//! [`NaiveDateTime`]).
//!
//! # Why the codec is ours
//!
//! It stands on `rmp`, which knows the markers of MessagePack. The serde layer above is written here and not taken from
//! `rmp-serde`, for three reasons. Integers beyond 64 bits and date-times are extension types of this protocol, also
//! when they come as an `i128`. Byte strings of [`BODY_THRESHOLD`] bytes and more travel beside the value instead of in it,
//! so that they are neither copied nor searched. And an error names the place inside the value, such as
//! `result.rows[3].price`, which costs nothing unless there is an error.

mod any;
mod args;
mod bigint;
mod blob;
mod builder;
mod decode;
mod encode;
mod encoded;
mod error;
mod foreign;
mod handover;
#[cfg(feature = "jiff")]
mod jiff;
mod map;
mod read;
#[cfg(test)]
mod tests;
mod text;
mod time;
pub mod write;

pub use any::Value;
pub use args::Args;
#[doc(hidden)]
pub use args::ArgsBuilder;
pub use bigint::{BigInt, DoesNotFit, ParseBigIntError};
pub use blob::Blob;
pub use builder::ValueBuilder;
pub use encoded::Encoded;
pub use error::{ValueError, ValueErrorKind};
pub use map::Map;
pub use time::{DateTime, NaiveDateTime, TimeError};

/// Byte strings from this length on travel beside the value, as a body of its frame.
pub const BODY_THRESHOLD: usize = 16 * 1024;
/// So many lists and maps may stand inside one another.
pub const MAX_DEPTH: usize = 128;

/// The extension types of the protocol.
pub(crate) mod ext {
    pub(crate) const TIMESTAMP: i8 = -1;
    pub(crate) const BIG_INT: i8 = 1;
    pub(crate) const DATE_TIME: i8 = 2;
    pub(crate) const NAIVE_DATE_TIME: i8 = 3;
    pub(crate) const BODY: i8 = 5;
}
