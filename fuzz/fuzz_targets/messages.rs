//! What keeper, shim and host say to each other while workers live.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/custody/src/keeper/shim/messages.rs"]
#[allow(dead_code, reason = "each side uses its half of them")]
mod messages;
#[path = "../../crates/custody/src/link/wire.rs"]
#[allow(dead_code, reason = "each side uses its half of the wire")]
mod wire;

use messages::{FromShim, ToShim};
use wire::{SpawnAnswer, ToHost};

/// What is read is written and read back as the same.
macro_rules! round_trip {
    ($data:expr, $($message:ty),+) => { $(
        if let Some(message) = <$message>::decode($data) {
            let written = message.encode();
            let again = <$message>::decode(&written).expect("what was written is read back");
            assert_eq!(again.encode(), written);
        }
    )+ };
}

fuzz_target!(|data: &[u8]| {
    round_trip!(data, FromShim, ToShim, SpawnAnswer, ToHost);
});
