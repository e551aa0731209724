//! The keeper: parent to everything that a run starts, and the one who stays when the host is gone.
//!
//! A program of its own, built from std alone and carried inside the library. It owns the ledger's pen,
//! the shims and the end of the run; it knows nothing of pools, calls or time-outs. The host talks to it
//! through the socket on descriptor 0.
//!
//! `main` → `keeper` (the loop) → `birth` (a worker's start) → `shim` (one per worker) → `launch` (from clone
//! to exec) → `wards` (a worker's life and end) → `children` and `descendants` (the end of what it started) → `late` (those
//! who do not end).

mod birth;
mod cgroup;
mod children;
mod descendants;
mod failpoint;
mod identity;
mod keeper;
mod launch;
mod ledger;
mod messages;
mod overdue;
#[path = "../ledger/record.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "the keeper writes records and never reads them"))]
mod record;
mod shim;
#[cfg(feature = "failpoints")]
mod steps;
mod sys;
mod wards;
#[path = "../wire.rs"]
#[expect(dead_code, reason = "each side uses its half of the wire")]
mod wire;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("--probe-namespace") => sys::exit(shim::probe_namespace()),
        Some(_run) => keeper::serve(),
        // Started by hand: nothing to keep.
        None => sys::exit(2),
    }
}
