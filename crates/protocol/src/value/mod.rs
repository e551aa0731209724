//! Values that travel between a host and its workers, and their bytes.
//!
//! Owns the kinds of values in `spec/wire.md` and their encoding: [`Value`] holds a value of any kind, [`Encoded`] its
//! bytes, and [`Args`] the arguments of a call. Knows nothing of frames, sockets or calls.
//!
//! Any `T: Serialize` can be sent and any `T: DeserializeOwned` received. As in JSON, structs are maps, tuples are
//! lists, `None` and `()` are nil, and enums are tagged by the name of their variant. Unlike JSON, there are byte
//! strings ([`Blob`]), integers of any size ([`BigInt`], as well as `i128` and `u128`) and date-times ([`DateTime`],
//! [`NaiveDateTime`]).
//!
//! # Why there is a codec here
//!
//! The codec is based on `rmp`, which knows the markers of MessagePack. The serde layer is written here instead of
//! using `rmp-serde`, for three reasons. Integers beyond 64 bits, including `i128`, and date-times are extension types
//! of this protocol. Byte strings of [`BODY_THRESHOLD`] bytes and more travel beside the value instead of inside it, so
//! that they are neither copied nor scanned. Errors contain the path inside the value, such as `result.rows[3].price`,
//! which costs nothing if there is no error.

mod args;
mod builder;
mod decode;
mod dynamic_value;
mod encode;
mod encoded;
mod error;
mod items;
mod map;
mod passthrough;
mod read;
mod scalar;
mod serde_impls;
#[cfg(test)]
pub(crate) mod tests;
mod text;
pub mod write;

pub use args::Args;
#[doc(hidden)]
pub use args::ArgsBuilder;
pub use builder::ValueBuilder;
pub use dynamic_value::Value;
pub use encoded::{Encoded, PayloadLayout, ValueBlock};
pub use error::{ValueError, ValueErrorKind};
pub use items::EncodedItems;
pub use map::Map;
pub use scalar::bigint::{BigInt, DoesNotFit, ParseBigIntError};
pub use scalar::blob::Blob;
pub use scalar::time::{DateTime, NaiveDateTime, TimeError};

/// Byte strings of at least this length travel beside the value, as a body of the frame.
pub const BODY_THRESHOLD: usize = 16 * 1024;
/// The maximum nesting depth of lists and maps.
pub const MAX_DEPTH: usize = 128;

/// The extension types of the protocol.
pub(crate) mod ext {
    pub(crate) const TIMESTAMP: i8 = -1;
    pub(crate) const BIG_INT: i8 = 1;
    pub(crate) const DATE_TIME: i8 = 2;
    pub(crate) const NAIVE_DATE_TIME: i8 = 3;
    pub(crate) const BODY: i8 = 5;
}
