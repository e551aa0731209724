//! Hash tables whose keys are numbers that the host assigns. Hashing such a key costs one multiplication.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hasher for numbers that are not chosen by an attacker.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The table uses the top seven bits of the hash as tags.
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A hash table whose keys are numbers that the host has assigned.
pub type IdMap<T> = HashMap<u64, T, BuildHasherDefault<IdHasher>>;
