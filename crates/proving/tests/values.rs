//! How much memory a worker's bytes can cost its host during decoding.
//!
//! The bound is a multiple of the received bytes, because every entry of a list becomes a value in memory. What a
//! header merely announces costs nothing. The counting allocator needs a separate test program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use snakepit::value::{Blob, Encoded, Value};

struct PeakAllocator;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // A thread that ends has no counters any more, and they are no longer read.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + change);
        PEAK.with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: passes every call on to the system's allocator unchanged. Counting allocates nothing.
unsafe impl GlobalAlloc for PeakAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: PeakAllocator = PeakAllocator;

/// Returns the maximum memory that was allocated at one time while `work` ran.
fn peak<T>(work: impl FnOnce() -> T) -> usize {
    let before = NOW.get();
    PEAK.set(before);
    drop(work());
    (PEAK.get() - before).max(0) as usize
}

/// Returns the bound. A list of one-byte values grows by doubling and copies the old half: three times the size of a
/// `Value` per byte. The constant is the initial capacity of each of the 128 levels.
fn bound(bytes: usize) -> usize {
    bytes * 3 * size_of::<Value>() + 64 * 1024 * 128
}

fn cost(payload: &[u8], has_bodies: bool) -> usize {
    let Ok(encoded) = Encoded::from_payload(Bytes::copy_from_slice(payload), has_bodies.into()) else {
        return 0;
    };
    let costs = [
        peak(|| encoded.to_value()),
        peak(|| encoded.decode::<Value>()),
        peak(|| encoded.decode::<Vec<(u64, String)>>()),
        peak(|| encoded.decode::<Vec<()>>()),
        peak(|| encoded.decode::<std::collections::HashMap<String, Blob>>()),
    ];
    costs.into_iter().max().unwrap_or(0)
}

#[test]
fn a_header_that_announces_four_billion_entries_costs_nothing() {
    for header in [b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"] {
        let mut bytes = header.to_vec();
        bytes.extend([0xff; 4]);
        bytes.extend([0xc0; 16]);
        assert!(cost(&bytes, false) < 1024, "{header:x?}: {}", cost(&bytes, false));
    }
}

/// Each list announces as many entries as there are bytes left.
#[test]
fn nested_headers_do_not_multiply_memory_use() {
    let mut bytes = Vec::new();
    for _ in 0..128 {
        bytes.push(0xdd);
        bytes.extend((60_000u32).to_be_bytes());
    }
    bytes.resize(65_536, 0xc0);
    assert!(cost(&bytes, false) < bound(bytes.len()), "{}", cost(&bytes, false));
}

#[test]
fn a_list_of_a_million_nils_costs_what_it_holds() {
    let mut bytes = vec![0xdd];
    bytes.extend((1_000_000u32).to_be_bytes());
    bytes.resize(1_000_005, 0xc0);
    let cost = cost(&bytes, false);
    assert!(cost < bound(bytes.len()), "{cost}");
    // The measurement itself works.
    assert!(cost > 1_000_000 * size_of::<Value>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_cost_more_than_their_bound(
        payload in vec(prop_oneof![any::<u8>(), 0xd9u8..0xe0, Just(0xffu8), Just(0u8)], 0..200),
        has_bodies in any::<bool>(),
    ) {
        prop_assert!(cost(&payload, has_bodies) < bound(payload.len()));
    }
}
