//! A cleanup in another time namespace, where every start time differs. The defect behind this test: the cleanup killed
//! a live run of another host.

use std::process::Command;

use snakepit_proving::{Case, HostProcess, OpenAs};

super::each_tier!(
    a_live_run_is_let_be,
    a_live_run_is_let_be_without_pidfs,
    a_dead_run_is_cleared_without_pidfs
);

fn cleanup_elsewhere(case: &Case, options: &OpenAs) -> std::collections::BTreeMap<String, String> {
    let host = case.host_command();
    let mut command = Command::new("unshare");
    command.args(["--time", "--boottime", "100000", "--fork"]).arg(host.get_program()).args(host.get_args());
    for (key, value) in host.get_envs() {
        command.env(key, value.expect("a value"));
    }
    let mut host = HostProcess::start(command, options);
    let told = host.ask(&format!("reap state={}", case.state().display())).expect("a cleanup there");
    host.say("return");
    host.wait();
    told
}

/// Hides the pidfs inode from both sides, which would be decisive on its own.
fn without_pidfs(case: &mut Case) {
    case.options.failpoints = Some("look.no_pidfs=errno:38".to_owned());
}

fn live_run(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("without root, time namespaces may be forbidden");
    }
    let mut live = case.host_with(2, "stand");
    let told = cleanup_elsewhere(case, &case.options);
    assert_eq!((told["runs"].as_str(), told["killed"].as_str()), ("0", ""), "{told:?}");
    case.must_be_populated(2);
    live.spawn(1, "stand");
    case.note(&live);
    live.kill();
    case.verdict();
}

fn a_live_run_is_let_be(case: &mut Case) {
    live_run(case);
}

fn a_live_run_is_let_be_without_pidfs(case: &mut Case) {
    without_pidfs(case);
    live_run(case);
}

fn a_dead_run_is_cleared_without_pidfs(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("without root, time namespaces may be forbidden");
    }
    without_pidfs(case);
    let mut host = case.host_with(2, "heir");
    super::leave_a_dead_run(case, &mut host);
    let told = cleanup_elsewhere(case, &case.options);
    assert_eq!((told["clean"].as_str(), told["removed"].as_str()), ("true", "1"), "{told:?}");
    assert!(case.tag().is_free(), "survivors: {:#?}", case.tagged_processes());
    case.verdict();
}
