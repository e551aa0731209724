//! Frames of workers that violate the protocol, or are costly to read.

mod decoding_cost;
mod faults;
