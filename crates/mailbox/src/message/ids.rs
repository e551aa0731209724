//! The generator of message ids.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::MessageId;

/// Generates message ids: UUIDs of version 7 made of the time, a counter and random bits. The random bits are drawn
/// once per generator, because a system call for each id would take longer than the rest of a send.
#[derive(Debug)]
pub struct MessageIds {
    random: u128,
    counter: u32,
}

const RANDOM_BITS: u32 = 46;

impl MessageIds {
    /// Creates a generator whose ids no other generator produces.
    #[expect(clippy::new_without_default, reason = "each issuer draws random bits")]
    pub fn new() -> Self {
        Self { random: random() & ((1 << RANDOM_BITS) - 1), counter: 0 }
    }

    /// Returns the next id. It sorts after the ids of earlier milliseconds.
    pub fn next(&mut self, now: SystemTime) -> MessageId {
        self.counter = self.counter.wrapping_add(1);
        let millis = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let counter = u128::from(self.counter);
        let high = (millis << 80) | (7 << 76) | ((counter >> 16 & 0xfff) << 64);
        let low = (0b10 << 62) | ((counter & 0xffff) << RANDOM_BITS) | self.random;
        MessageId(uuid::Uuid::from_u128(high | low))
    }
}

/// Returns a number whose lower 62 bits are random.
pub(crate) fn random() -> u128 {
    // Only part of a version 7 UUID is random, so the bits come from two of them.
    let number = || uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, 0, 0)).as_u128();
    let (one, other) = (number(), number());
    (one & 0xffff_ffff) << 30 | (other & 0x3fff_ffff)
}
