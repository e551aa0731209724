//! Dead runs: found, judged, cleared, and shown to people.
//!
//! Owns the decision that a run is over, and the search for its living processes. It must not know the run of its own
//! host, except to leave it alone.
//!
//! In the order of a cleanup: `reaper` → `liveness` (is it over?) → `sweep_lock` (one host clears for all) → `sweep` →
//! `search` → `process_table` → `report`. `listing` shows the same records to people.

pub(crate) mod listing;
pub(crate) mod liveness;
#[cfg(not(portable))]
mod process_table;
pub(crate) mod reaper;
pub(crate) mod report;
#[cfg_attr(portable, path = "../portable/search.rs")]
mod search;
pub(crate) mod sweep;
mod sweep_lock;
