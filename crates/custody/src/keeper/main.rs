//! The keeper: parent to everything that a run starts, and the process that stays when the host is gone.
//!
//! A program of its own, built from std alone and carried inside the library. It owns the ledger, the shims and the end of the
//! run. It must not know pools, calls or time-outs. The host talks to it through the socket on descriptor 0.
//!
//! In the order of a worker's life: `keeper` (the loop) → `spawn` → `ledger` (intent and record) → `shim/` (gate, exec, watch)
//! → `workers` (reports and the end) → `kill/` (what is left). `identity` says who a process is, `sys/` makes the system
//! calls, `failpoint` adds faults on demand.

mod failpoint;
mod identity;
mod keeper;
mod kill;
mod ledger;
#[cfg(feature = "failpoints")]
#[path = "../failpoint/plan.rs"]
mod plan;
#[path = "../process/proc_stat.rs"]
mod proc_stat;
#[path = "../ledger/record.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "the keeper writes records and never reads them"))]
mod record;
mod shim;
mod spawn;
#[cfg(feature = "failpoints")]
#[path = "../failpoint/steps.rs"]
mod steps;
mod sys;
#[path = "../link/wire.rs"]
#[expect(dead_code, reason = "each side uses its half of the wire")]
mod wire;
mod workers;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("--probe-namespace") => sys::exit(shim::probe_namespace()),
        Some(_run) => keeper::serve(),
        // Started by hand: nothing to keep.
        None => sys::exit(2),
    }
}
