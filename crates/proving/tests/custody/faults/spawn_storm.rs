//! `kill -9` at random moments while four threads spawn: no worker runs unrecorded, and none hangs at the gate.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;
use snakepit_proving::deadline::let_pass;
use snakepit_proving::{Case, Deadline, GridTier, HostProcess, ObservedProcess, random, rounds};

super::each_tier!(random_kill);

/// The longest time from the first spawn of a storm to the kill.
const LONGEST_MICROS: u64 = 25_000;

fn random_kill(case: &mut Case) {
    let log = case.dir().join("storm.log");
    fs::write(&log, "").expect("the storm's log");
    fs::set_permissions(&log, Permissions::from_mode(0o666)).expect("chmod");
    // The shim tier is the default. The others share its code.
    let rounds = if case.tier == GridTier::Shim { rounds(1000, 60) } else { rounds(250, 20) };
    for round in 0..rounds {
        let mut host = case.host();
        host.ask(&format!("storm 4 {} {}", case.state().display(), log.display())).expect("storm");
        // The moment is random on purpose. This does not wait for an event.
        let_pass(Duration::from_micros(random::below(LONGEST_MICROS)));
        strike(&mut host, round);
        case.workers_must_be_gone(Deadline::patient());
        case.custody_must_be_gone(Deadline::patient());
        let log = fs::read_to_string(&log).expect("the storm's log");
        let unrecorded: Vec<&str> = log.lines().filter(|line| !line.starts_with("recorded")).collect();
        assert!(unrecorded.is_empty(), "round {round}: ran unrecorded: {unrecorded:?}");
        case.forget_runs();
    }
    let log = fs::read_to_string(&log).expect("the storm's log");
    let ran = log.lines().count();
    assert!(ran > rounds, "the storm was none: {ran} workers in {rounds} rounds");
}

/// Kills in turns the host, the keeper first, or both at the same moment.
fn strike(host: &mut HostProcess, round: usize) {
    let keeper: ObservedProcess = host.keeper_process();
    match round % 3 {
        0 => host.kill(),
        1 => {
            keeper.signal(Signal::KILL);
            host.kill();
        }
        _ => {
            host.process().signal(Signal::STOP);
            keeper.signal(Signal::STOP);
            keeper.signal(Signal::KILL);
            host.kill();
        }
    }
}
