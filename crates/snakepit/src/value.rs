//! Values that travel between a host and its workers.
//!
//! [`Value`] holds one of any kind, [`Encoded`] holds its bytes, [`Args`] the arguments of a call. Any `T: Serialize` can be sent
//! and any `T: DeserializeOwned` received. As in JSON, structs are maps, tuples are lists, `Option` and `()` are nil, and enums are
//! tagged by the name of their variant. Unlike JSON there are byte strings ([`Blob`]), integers of any size ([`BigInt`], and `i128`
//! or `u128` as they are) and date-times ([`DateTime`], [`NaiveDateTime`]).

pub use snakepit_protocol::harmless;
#[doc(hidden)]
pub use snakepit_protocol::value::ArgsBuilder;
#[doc(inline)]
pub use snakepit_protocol::value::{
    Args, BODY_THRESHOLD, BigInt, Blob, DateTime, DoesNotFit, Encoded, MAX_DEPTH, Map, NaiveDateTime,
    ParseBigIntError, TimeError, Value, ValueError, ValueErrorKind,
};
