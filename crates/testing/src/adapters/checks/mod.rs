//! The checks, by topic.

pub(crate) mod calls;
pub(crate) mod cancels;
pub(crate) mod deaths;
pub(crate) mod endings;
pub(crate) mod errors;
pub(crate) mod lifecycle;
pub(crate) mod start;
pub(crate) mod stops;
pub(crate) mod streams;
pub(crate) mod values;
