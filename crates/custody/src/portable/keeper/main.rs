//! The portable keeper: parent to everything that a run starts, on systems without pidfds and shims.
//!
//! Like the keeper for Linux, it is a program of its own, built from std alone and carried inside the library. It has only the
//! tier `group`: each worker leads a process group, which is killed when the worker ends, when the host asks for it, and when
//! the host is gone. It must not know more than the keeper for Linux does.
//!
//! `keeper` (the loop) → `frames` (the host's messages) → `workers` (a worker's life) → `ledger` (intent and record) → `gate`
//! (up to exec). `sys` makes the system calls.

#[path = "../../keeper/sys/exec.rs"]
mod exec;
mod frames;
mod gate;
mod keeper;
mod ledger;
#[path = "../numbers.rs"]
#[expect(dead_code, reason = "the library checks all of them, the keeper uses most")]
mod numbers;
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
    // The run's id, for people who look at the list of processes, and how often to look for the host's end.
    let mut args = std::env::args().skip(1);
    match (args.next(), args.next().and_then(|text| text.parse().ok())) {
        (Some(_run), Some(poll_ms)) => keeper::serve(poll_ms),
        // Started by hand: nothing to keep.
        _ => sys::exit(2),
    }
}
