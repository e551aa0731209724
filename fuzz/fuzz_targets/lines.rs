//! What a worker of the adapter `stdio` prints, in pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| snakepit_adapters::fuzzing::lines(data));
