//! Frames that a worker sends through its socket.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| snakepit_adapters::fuzzing::frames(data));
