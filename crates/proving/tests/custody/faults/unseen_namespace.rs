//! A cleanup from another PID namespace cannot see whether a process of a dead run is left. The defect behind this
//! test: the cleanup removed the records of living processes, and reported success.

use std::process::Command;

use snakepit_proving::{Case, GridTier, HostProcess, OpenAs};

super::each_tier!(the_record_stays_until_somebody_looks_who_can_see, a_run_goes_with_its_namespace);

fn host_in_a_namespace(case: &Case) -> HostProcess {
    let host = case.host_command();
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(host.get_program())
        .args(host.get_args());
    for (key, value) in host.get_envs() {
        command.env(key, value.expect("a value"));
    }
    HostProcess::start(command, &OpenAs::default())
}

fn the_record_stays_until_somebody_looks_who_can_see(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("without root, PID namespaces may be forbidden");
    }
    let before = super::ledger_of_another_boot::orphans_of_a_dead_run(case, 2);
    let mut elsewhere = host_in_a_namespace(case);
    let told = elsewhere.ask(&format!("reap state={}", case.state().display())).expect("a cleanup there");
    assert_eq!((told["clean"].as_str(), told["removed"].as_str()), ("false", "0"), "{told:?}");
    assert!(told["trouble"].contains("another_PID_namespace"), "{told:?}");
    elsewhere.say("return");
    elsewhere.wait();
    assert_eq!(case.run_dirs().len(), 1, "the record stays");
    assert_eq!(case.tagged_processes().len(), before);
    let told = case.cleanup().expect("a cleanup here");
    assert_eq!((told["clean"].as_str(), told["removed"].as_str()), ("true", "1"), "{told:?}");
    assert!(case.tag().is_free(), "survivors: {:#?}", case.tagged_processes());
}

fn a_run_goes_with_its_namespace(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("without root, PID namespaces may be forbidden");
    }
    if case.tier == GridTier::Namespace {
        // The shims of this tier cannot be counted from outside. The other tiers show the same.
        return;
    }
    let mut inside = host_in_a_namespace(case);
    let told = inside.try_open(case.tier, &case.state(), &OpenAs::default()).expect("a run there");
    case.note_run(&told["run"]);
    inside.spawn(2, "stand");
    // The run's lock is held, so it is a live run of another namespace.
    assert_eq!(case.cleanup().expect("a cleanup here")["runs"], "0");
    // The first process of the namespace ends all others with it, and no process is left to clear the run.
    inside.kill();
    case.custody_must_be_gone(snakepit_proving::Deadline::patient());
    let told = case.cleanup().expect("a cleanup here");
    assert_eq!((told["clean"].as_str(), told["killed"].as_str()), ("true", ""), "{told:?}");
    assert!(case.run_dirs().is_empty(), "the namespace is gone, and the run with it");
    case.verdict();
}
