//! The floors: the minimum cost of the same mechanism, without a library around it.

pub(crate) mod awaited_echo;
pub(crate) mod blocking_echo;
pub(crate) mod interpreter;
pub(crate) mod pipelined_echo;
