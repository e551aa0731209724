//! Values that travel between a host and its workers.
//!
//! [`Value`] is a value of any kind, [`Encoded`] is a value in encoded form, and [`Args`] are the arguments of a call.
//! Any `T: Serialize` can be sent, and any `T: DeserializeOwned` can be received. As in JSON, structs are maps, tuples
//! are lists, `Option` and `()` are nil, and enums are tagged with the name of their variant. Unlike JSON, there are
//! byte strings ([`Blob`]), integers of any size ([`BigInt`], or plain `i128` and `u128`) and date-times ([`DateTime`],
//! [`NaiveDateTime`]).

pub use snakepit_protocol::harmless;
#[doc(hidden)]
pub use snakepit_protocol::value::ArgsBuilder;
#[doc(inline)]
pub use snakepit_protocol::value::{
    Args, BODY_THRESHOLD, BigInt, Blob, DateTime, DoesNotFit, Encoded, EncodedItems, MAX_DEPTH, Map,
    NaiveDateTime, ParseBigIntError, PayloadLayout, TimeError, Value, ValueError, ValueErrorKind,
};
