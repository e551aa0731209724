//! Random numbers: fresh ones from the system's seed, and sequences that a test can repeat.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns a fresh number below `limit`.
pub fn below(limit: u64) -> u64 {
    fresh() % limit.max(1)
}

/// Returns a word that nothing else on this machine contains.
pub fn word() -> String {
    format!("{:016x}", fresh())
}

/// Returns a fresh number. The standard library seeds every state from the system, and no two states are equal.
fn fresh() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A sequence that is the same for the same seed.
#[derive(Clone, Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// Starts the sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number, which is below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}
