//! The ways to stop.

mod barrier;
