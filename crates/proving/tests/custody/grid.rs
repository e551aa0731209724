//! The grid: every fault is one file below `faults/`, and every tier is one case of the fault.
//!
//! `faults/expected.rs` states in advance which processes may survive. `SNAKEPIT_QUICK=1` reduces the rounds, never the
//! faults.

mod faults;
