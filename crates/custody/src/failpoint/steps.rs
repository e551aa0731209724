//! The steps of a spawn at which a fault can be injected. Compiled into keeper and library.

/// All steps, in the order of a spawn, which alternates between keeper, shim and worker.
pub(crate) const STEPS: &[&str] = &[
    "keeper.request",
    "keeper.sockets",
    "keeper.clone_shim",
    "keeper.shim_cloned",
    "shim.start",
    "shim.setup",
    "shim.clone_worker",
    "worker.start",
    "worker.born",
    "worker.gate",
    "keeper.identity",
    "keeper.intent",
    "keeper.record_written",
    "keeper.gate",
    "keeper.gate_opened",
    "worker.gate_passed",
    "worker.descriptors",
    "worker.exec",
    "keeper.spawned",
    "shim.running",
];
