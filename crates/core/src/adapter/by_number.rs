//! A table whose keys are numbers of our own: spreading them costs a multiplication.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Numbers that are spread well enough as they are.
#[derive(Debug, Default)]
pub struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The table takes its seven tag bits from the top.
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A table whose keys are numbers that the host has given out itself.
pub type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<Plain>>;
