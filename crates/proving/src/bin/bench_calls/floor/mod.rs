//! The floors: the least that the same mechanism costs, without a library around it.

pub(crate) mod awaited;
pub(crate) mod bare;
pub(crate) mod msgspec;
pub(crate) mod raw;
