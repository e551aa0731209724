//! The messages between keeper, shim and host while workers live.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[macro_use]
#[path = "../../crates/custody/src/link/wire.rs"]
#[allow(dead_code, reason = "each side uses its half of the wire")]
mod wire;
#[path = "../../crates/custody/src/keeper/shim/messages.rs"]
#[allow(dead_code, reason = "each side uses its half of the messages")]
mod messages;

use messages::{FromShim, ToShim};
use wire::{SpawnAnswer, ToHost};

/// Asserts that a decoded message is unchanged after it is encoded and decoded again.
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
