//! The ids of messages.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::MessageId;

/// Issues ids: UUIDs of version 7 made of the time, a counter and random bits that the issuer draws once. Asking the system for
/// random bits each time would take longer than the rest of a send.
#[derive(Debug)]
pub struct MessageIds {
    random: u128,
    counter: u32,
}

const RANDOM_BITS: u32 = 46;

impl MessageIds {
    /// An issuer whose ids no other issuer makes.
    #[expect(clippy::new_without_default, reason = "each issuer draws random bits")]
    pub fn new() -> Self {
        Self { random: random() & ((1 << RANDOM_BITS) - 1), counter: 0 }
    }

    /// The next id; it sorts behind those of earlier times.
    pub fn next(&mut self, now: SystemTime) -> MessageId {
        self.counter = self.counter.wrapping_add(1);
        let millis = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let counter = u128::from(self.counter);
        let high = (millis << 80) | (7 << 76) | ((counter >> 16 & 0xfff) << 64);
        let low = (0b10 << 62) | ((counter & 0xffff) << RANDOM_BITS) | self.random;
        MessageId(uuid::Uuid::from_u128(high | low))
    }
}

/// Its lower 62 bits are random.
pub(crate) fn random() -> u128 {
    // The upper ones of version 7 are the time; two of them give enough of the rest.
    let number = || uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, 0, 0)).as_u128();
    let (one, other) = (number(), number());
    (one & 0xffff_ffff) << 30 | (other & 0x3fff_ffff)
}
