//! Values that a worker sends, as callers decode them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| snakepit_adapters::fuzzing::value(data));
