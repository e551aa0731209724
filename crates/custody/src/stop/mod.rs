//! Ways to stop: the stop barrier and its report, and the signals that ask a host to stop.
//!
//! Owns TERM, grace, KILL and the list of survivors. It must not know why a run stops.
//!
//! `signals` (recorded if the host asks for it) → `barrier` → `survivors` → `report`.

pub(crate) mod barrier;
pub(crate) mod report;
pub(crate) mod signals;
mod survivors;
