//! The grid: every fault is one file below `faults/`, every tier one case of it.
//!
//! `faults/expected.rs` states beforehand who may survive what. `SNAKEPIT_QUICK=1` makes fewer rounds,
//! never fewer faults.

mod faults;
