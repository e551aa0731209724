//! The portable keeper: parent to everything that a run starts, where there are no pidfds and no shims.
//!
//! As its sibling for Linux it is a program of its own, built from std alone and carried inside the library. It
//! holds the tier `group` and no other: each worker leads a process group, and that group is killed when the
//! worker ends, when the host says so, and when the host is gone.
//!
//! `main` → `keeper` (the loop) → `inbox` (what the host says) → `birth` (the gate, up to exec) → `wards` (a
//! worker's life and end) → `pen` (the ledger).

mod birth;
mod inbox;
mod keeper;
#[path = "../look.rs"]
mod look;
#[path = "../numbers.rs"]
#[expect(dead_code, reason = "the library checks all of them, the keeper uses most")]
mod numbers;
mod pen;
#[path = "../../ledger/record.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "the keeper writes records and never reads them"))]
mod record;
mod sys;
mod wards;
#[path = "../../wire.rs"]
#[expect(dead_code, reason = "each side uses its half of the wire")]
mod wire;

fn main() {
    // The run's id, for people who look at the list of processes, and how often to look for the host's end.
    let mut args = std::env::args().skip(1);
    match (args.next(), args.next().and_then(|text| text.parse().ok())) {
        (Some(_run), Some(poll_ms)) => keeper::serve(poll_ms),
        // Started by hand: nothing to keep.
        _ => sys::exit(2),
    }
}
