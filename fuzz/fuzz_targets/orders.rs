//! The orders from the host to its keeper, and the launch orders for a process at the gate.
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
        // Reads the strings like the process at the gate. No string goes past its end.
        for strings in [&orders.program, &orders.argv, &orders.envp, &orders.cwd] {
            let length: usize = strings.iter().map(|string| string.to_bytes_with_nul().len()).sum();
            assert!(length <= data.len());
        }
        let written = orders.encode();
        let again = LaunchOrders::decode(&written).expect("what was written is read back");
        assert_eq!(again.encode(), written);
    }
});
