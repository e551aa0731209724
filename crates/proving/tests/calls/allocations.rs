//! A call makes few allocations in its host, and not more with many workers and sessions.
//!
//! The counting allocator needs a separate test program. One thread runs everything, so its counter sees every
//! allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use snakepit::adapter::PythonWorker;
use snakepit::custody::CustodyOptions;
use snakepit::{Snakepit, args};

struct AllocationCounter;

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
    static LARGE: Cell<u64> = const { Cell::new(0) };
}

/// Up to this size, the usual allocator caches memory per thread. A larger allocation takes several times as long.
const AT_HAND: usize = 1024;

// SAFETY: passes every call on to the system's allocator unchanged. Counting allocates nothing.
unsafe impl GlobalAlloc for AllocationCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = MADE.try_with(|made| made.set(made.get() + 1));
        if layout.size() > AT_HAND {
            let _ = LARGE.try_with(|large| large.set(large.get() + 1));
        }
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;

const CALLS: u32 = 2000;

/// Returns the allocations per call, and how many of them are large, with this many workers and sessions.
fn allocations_per_call(workers: usize, sessions: usize) -> (f64, f64) {
    let home = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/calls/worker.py");
        let pool = snakepit::python(PythonWorker::new(worker)).workers(workers);
        let custody = CustodyOptions::default().state_dir(home.path());
        let pit = Snakepit::builder().pool(pool).custody(custody).start().await.expect("an engine");
        for session in 0..sessions {
            let next: u64 =
                pit.call("tiny", args! { number: 1 }).session(session.to_string()).await.expect("a call");
            assert_eq!(next, 2);
        }
        // The first calls fill buffers that are kept.
        for number in 0..100u64 {
            let _: u64 = pit.call("tiny", args! { number: number }).await.expect("a call");
        }
        let before = (MADE.get(), LARGE.get());
        for number in 0..u64::from(CALLS) {
            let next: u64 = pit.call("tiny", args! { number: number }).await.expect("a call");
            assert_eq!(next, number + 1);
        }
        let per_call = |now: u64, before: u64| {
            f64::from(u32::try_from(now - before).expect("not millions")) / f64::from(CALLS)
        };
        let made = (per_call(MADE.get(), before.0), per_call(LARGE.get(), before.1));
        pit.stop().await;
        made
    })
}

#[test]
fn a_call_makes_five_allocations_whatever_the_number_of_workers_and_sessions() {
    let (alone, large) = allocations_per_call(1, 0);
    let (among_many, _) = allocations_per_call(8, 500);
    println!(
        "allocations per call: {alone:.2} with 1 worker, {among_many:.2} with 8 workers and 500 sessions"
    );
    assert!(alone < 5.5, "{alone:.2}");
    assert!(large < 0.1, "{large:.2} of them are large: what is rare has made every call's future grow");
    assert!((among_many - alone).abs() < 0.5, "{alone:.2} alone, {among_many:.2} among many");
}
