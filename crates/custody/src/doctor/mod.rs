//! What this machine offers: every answer is found by trying, and every "no" has its reason.
//!
//! Owns the checks of tiers and the trial of a whole run. It must not know how the answers are printed.
//!
//! `probe` (all answers) → `tiers` (single calls) → `trial` (a run with a worker).

pub(crate) mod probe;
#[cfg_attr(portable, path = "../portable/tiers.rs")]
pub(crate) mod tiers;
pub(crate) mod trial;
