//! The line with which a worker reports that it is ready.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| snakepit_adapters::fuzzing::ready_line(data));
