//! Reloads: every worker is replaced, or none.

mod failures;
mod policies;
mod replacement;
