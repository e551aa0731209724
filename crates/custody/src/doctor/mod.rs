//! Checks of what this machine supports. Every answer comes from a trial, and every "no" carries its reason.
//!
//! Owns the checks of the tiers and the trial of a whole run. It must not know how the answers are printed.
//!
//! `probe` (all answers) → `tiers` (single calls) → `trial` (a run with a worker).

pub(crate) mod probe;
#[cfg_attr(portable, path = "../portable/tiers.rs")]
pub(crate) mod tiers;
pub(crate) mod trial;
