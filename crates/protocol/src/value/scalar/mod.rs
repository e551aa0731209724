//! Values that have a type of their own here, because Rust or serde has none that fits: integers of any size, byte strings and
//! date-times.

pub(crate) mod bigint;
pub(crate) mod blob;
#[cfg(feature = "jiff")]
pub(crate) mod jiff;
pub(crate) mod time;
