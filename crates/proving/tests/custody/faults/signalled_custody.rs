//! A worker signals its shim and its keeper. Only KILL ends them, a signal to the process at the gate does not reach
//! the program that the process becomes, and a killed shim is reported as such. The promise: the reported end of a
//! worker is the real one.

use snakepit_proving::{Case, ObservedProcess};

super::each_tier!(with_everything_that_can_be_blocked, with_kill, at_the_gate, with_a_limit_on_files);

fn with_everything_that_can_be_blocked(case: &mut Case) {
    let mut host = case.host_with(1, "signaller");
    let worker = host.workers[0].clone();
    assert!(ObservedProcess::of(worker.shim).is_alive() && host.keeper_process().is_alive());
    // The same keeper starts the next worker.
    let next = host.spawn(1, "exit 3 0").remove(0);
    let told = host.ask(&format!("wait {}", next.id)).expect("wait");
    assert_eq!(told.get("code").map(String::as_str), Some("3"), "{told:?}");
    host.ask(&format!("kill {}", worker.id)).expect("kill");
    let told = host.ask(&format!("wait {}", worker.id)).expect("wait");
    assert_eq!(told.get("signal").map(String::as_str), Some("9"), "{told:?}");
    host.kill();
    case.verdict();
}

fn with_kill(case: &mut Case) {
    let mut host = case.host_with(1, "stand");
    ObservedProcess::of(host.workers[0].shim).end();
    let told = host.ask(&format!("wait {}", host.workers[0].id)).expect("wait");
    assert_eq!(told.get("lost").map(String::as_str), Some("shim"), "{told:?}");
    host.kill();
    case.verdict();
}

fn at_the_gate(case: &mut Case) {
    let mut host = case.host();
    let (_, waiting) = super::kill_spare::spare(&host);
    for signal in [rustix::process::Signal::USR1, rustix::process::Signal::ALARM] {
        waiting.signal(signal);
    }
    let worker = host.spawn(1, "stand").remove(0);
    case.note(&host);
    assert_eq!(worker.pid, waiting.pid(), "the worker is the process that was signalled");
    case.must_be_populated(1);
    host.kill();
    case.verdict();
}

/// SIGXFSZ would end the keeper without a word. Instead, the refused write is an error of the spawn.
fn with_a_limit_on_files(case: &mut Case) {
    let mut host = case.host();
    let keeper = rustix::process::Pid::from_raw(host.keeper.expect("a keeper"));
    let limit = rustix::process::Rlimit { current: Some(0), maximum: None };
    rustix::process::prlimit(keeper, rustix::process::Resource::Fsize, limit).expect("prlimit");
    let (_, text) = host.ask("spawn 1 stand").expect_refusal("a spawn without room for its record");
    assert!(text.contains("the limit on the size of files is too low"), "{text}");
    assert!(host.keeper_process().is_alive());
    let limit = rustix::process::Rlimit { current: None, maximum: None };
    rustix::process::prlimit(keeper, rustix::process::Resource::Fsize, limit).expect("prlimit");
    host.spawn(1, "stand");
    host.kill();
    case.verdict();
}
