//! What the host sends to its keeper, and what a process at the gate is to become.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/custody/src/link/wire.rs"]
#[allow(dead_code, reason = "each side uses its half of the wire")]
mod wire;

use wire::{LaunchOrders, ToKeeper};

fuzz_target!(|data: &[u8]| {
    if let Some(message) = ToKeeper::decode(data) {
        let written = message.encode();
        let again = ToKeeper::decode(&written).expect("what was written is read back");
        assert_eq!(again.encode(), written);
    }
    if let Some(orders) = LaunchOrders::decode(data) {
        // As the process at the gate reads them: no string goes past its end.
        for strings in [&orders.program, &orders.argv, &orders.envp, &orders.cwd] {
            let length: usize = strings.iter().map(|string| string.to_bytes_with_nul().len()).sum();
            assert!(length <= data.len());
        }
        let written = orders.encode();
        let again = LaunchOrders::decode(&written).expect("what was written is read back");
        assert_eq!(again.encode(), written);
    }
});
