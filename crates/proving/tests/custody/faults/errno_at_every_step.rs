//! The system fails at every step of a spawn: no descriptors, no processes, no memory. Either the spawn is refused, or
//! the error costs only what was prepared in advance. No worker is half started, and the next spawn works.
//!
//! About `crates/custody/src/failpoint/steps.rs` and `crates/custody/src/keeper/spawn.rs`.

use snakepit_proving::{Case, Deadline, HostReply, OpenAs, SpawnFault};

super::each_tier!(no_descriptors, no_processes, no_memory);

fn no_descriptors(case: &mut Case) {
    at_every_step(case, libc::EMFILE);
}

fn no_processes(case: &mut Case) {
    at_every_step(case, libc::EAGAIN);
}

fn no_memory(case: &mut Case) {
    at_every_step(case, libc::ENOMEM);
}

/// The maximum cost of a fault at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FaultCost {
    /// The spawn that takes the step.
    TheSpawn,
    /// The shim that is being prepared, and the spawn only if it already waited for that shim.
    AtMostTheSpare,
    /// Nothing: the program runs or is about to, and nothing can be undone.
    Nothing,
}

fn cost(step: &str) -> FaultCost {
    match step {
        "keeper.request"
        | "keeper.intent"
        | "keeper.record_written"
        | "keeper.gate"
        | "worker.gate_passed"
        | "worker.descriptors"
        | "worker.exec" => FaultCost::TheSpawn,
        "keeper.sockets" | "keeper.clone_shim" | "keeper.shim_cloned" | "keeper.identity" | "shim.start"
        | "shim.setup" | "shim.clone_worker" | "worker.start" | "worker.born" | "worker.gate" => {
            FaultCost::AtMostTheSpare
        }
        "keeper.gate_opened" | "keeper.spawned" | "shim.running" => FaultCost::Nothing,
        _ => panic!("what does a fault at {step} cost?"),
    }
}

fn at_every_step(case: &mut Case, errno: i32) {
    let reason = std::io::Error::from_raw_os_error(errno).to_string();
    for step in snakepit_custody::failpoint_steps() {
        let fault = SpawnFault::at(step, 1, &format!("errno:{errno}"), case.dir());
        case.options = fault.options();
        let mut host = case.host();
        let reply = host.ask("spawn 1 stand");
        fault.must_have_come();
        let running = match (cost(step), reply) {
            (FaultCost::TheSpawn | FaultCost::AtMostTheSpare, HostReply::No(_, text)) => {
                assert!(text.contains(&reason), "{step}: a refusal says why: {text}");
                let free = case.tag().is_free_before(Deadline::patient());
                assert!(free, "{step}: half-born: {:#?}", case.tagged_processes());
                0
            }
            (FaultCost::AtMostTheSpare | FaultCost::Nothing, HostReply::Ok(told)) => {
                host.announced(&told).len()
            }
            (cost, reply) => panic!("{step} should cost {cost:?}, but: {reply:?}"),
        };
        must_be_whole(case, running, step);
        host.spawn(1, "stand");
        case.note(&host);
        must_be_whole(case, running + 1, step);
        host.ask("stop").expect("stop");
        case.workers_must_be_gone_already();
        host.say("return");
        assert!(host.wait().success(), "{step}");
        case.custody_must_be_gone(Deadline::patient());
        case.forget_runs();
    }
    case.options = OpenAs::default();
}

/// Asserts that this many workers run, and that exactly these are recorded as living.
fn must_be_whole(case: &Case, running: usize, step: &str) {
    let found = case.tagged_processes();
    assert_eq!(found.len(), running, "{step}: {found:#?}");
    let runs = snakepit_custody::ledger(&case.state()).expect("the ledger");
    let living: Vec<_> = runs.iter().flat_map(|run| &run.processes).collect();
    assert_eq!(living.len(), running, "{step}: {living:#?}");
    assert!(living.iter().all(|process| process.alive && !process.at_gate), "{step}: {living:#?}");
}
