//! The portable keeper: the parent of all workers of a run, on systems without pidfds and shims.
//!
//! Like the keeper for Linux, it is a separate program, built from std alone and embedded in the library. It supports
//! only the tier `group`: each worker leads a process group, which is killed when the worker ends, when the host asks
//! for it, and when the host is gone. It must not know more than the keeper for Linux.
//!
//! `keeper` (the loop) → `frames` (the host's messages) → `workers` (a worker's life) → `ledger` (intent and record) →
//! `gate` (up to exec). `sys` makes the system calls.

mod frames;
mod gate;
mod keeper;
mod ledger;
#[path = "../libc_abi.rs"]
#[expect(dead_code, reason = "the library checks all of them, the keeper uses most")]
mod libc_abi;
#[path = "../process_state.rs"]
mod process_state;
#[path = "../../ledger/record.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "the keeper writes records and never reads them"))]
mod record;
mod sys;
#[path = "../../link/wire.rs"]
#[expect(dead_code, reason = "each side uses its half of the wire")]
mod wire;
mod workers;

fn main() {
    // The first argument is the run's id, for people who look at the list of processes. The second one is how often to
    // check whether the host has ended.
    let mut args = std::env::args().skip(1);
    match (args.next(), args.next().and_then(|text| text.parse().ok())) {
        (Some(_run), Some(poll_ms)) => keeper::serve(poll_ms),
        // The program was started by hand, so it has nothing to do.
        _ => sys::exit(2),
    }
}
