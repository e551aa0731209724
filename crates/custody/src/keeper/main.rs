//! The keeper: the parent of every process that a run starts. It outlives the host and clears the run.
//!
//! A separate program, built from std alone and embedded in the library. It owns the ledger, the shims and the end of
//! the run. It must not know pools, calls or time-outs. The host talks to it through the socket on descriptor 0.
//!
//! In the order of a worker's life: `keeper` (the loop) → `spawn` → `ledger` (intent and record) → `shim/` (gate, exec,
//! watch) → `workers` (reports and the end) → `kill/` (remaining processes). `identity` reads the identity of
//! processes, `sys/` makes the system calls, `failpoint` adds faults on demand.

#[macro_use]
#[path = "../link/wire.rs"]
#[expect(dead_code, reason = "each side uses its half of the wire")]
mod wire;

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
mod workers;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("--probe-namespace") => sys::exit(shim::probe_namespace()),
        Some(_run) => keeper::serve(),
        // Started by hand, without a run.
        None => sys::exit(2),
    }
}
