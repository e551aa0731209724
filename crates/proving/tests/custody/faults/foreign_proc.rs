//! A PID namespace whose `/proc` is the outer one (`unshare -pf`, `nsenter -p`), so its pids belong to other processes.
//! The defect behind this test: custody harmed other processes, and workers survived.

use std::process::Command;

use snakepit_proving::{Case, HostProcess, OpenAs};

super::each_tier!(a_start_is_refused_in_words, a_cleanup_is_refused_and_touches_no_live_run);

/// Starts a host in a new PID namespace.
fn host_in_a_namespace(case: &Case, unshare: &[&str]) -> HostProcess {
    let host = case.host_command();
    let mut command = Command::new("unshare");
    command.args(unshare).arg(host.get_program()).args(host.get_args());
    for (key, value) in host.get_envs() {
        command.env(key, value.expect("a value"));
    }
    HostProcess::start(command, &OpenAs::default())
}

fn end(mut host: HostProcess) {
    host.say("return");
    host.wait();
}

fn a_start_is_refused_in_words(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("without root, PID namespaces may be forbidden");
    }
    for (unshare, word) in [(&["--pid", "--fork"][..], "--mount-proc"), (&["--pid"], "--fork")] {
        let mut host = host_in_a_namespace(case, unshare);
        let refused = host.try_open(case.tier, &case.state(), &OpenAs::default());
        let (status, words) = refused.expect_refusal("numbers of another namespace");
        assert_eq!(status, 125, "{words}");
        assert!(words.contains("PID namespace") && words.contains(word), "{words}");
        end(host);
    }
    let mut host = host_in_a_namespace(case, &["--pid", "--fork", "--mount-proc"]);
    host.try_open(case.tier, &case.state(), &OpenAs::default()).expect("with a /proc of its own");
    host.spawn(1, "stand");
    host.ask("stop").expect("stop");
    end(host);
    case.verdict();
}

fn a_cleanup_is_refused_and_touches_no_live_run(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("without root, PID namespaces may be forbidden");
    }
    let mut live = case.host_with(2, "stand");
    let mut host = host_in_a_namespace(case, &["--pid", "--fork"]);
    let (_, words) =
        host.ask(&format!("reap state={}", case.state().display())).expect_refusal("a cleanup there");
    assert!(words.contains("PID namespace"), "{words}");
    end(host);
    case.must_be_populated(2);
    live.kill();
    case.verdict();
}
