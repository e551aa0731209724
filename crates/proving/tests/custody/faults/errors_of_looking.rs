//! An error while looking for a process (no descriptors, no memory, no permission) does not prove that it is dead. The
//! defect behind this test: custody touched a live run of another host.

use std::process::Command;

use snakepit_proving::{Case, HostProcess, OpenAs, rounds};

super::each_tier!(out_of_descriptors, every_error_at_every_look);

/// Creates a live run and a dead one, side by side.
fn live_and_dead(case: &mut Case) -> HostProcess {
    let live = case.host_with(2, "stand");
    let mut dead = case.host_with(1, "heir");
    super::kill_all_of_custody(&mut dead);
    live
}

/// Asserts what must hold after every cleanup, whatever its result.
fn judge(case: &Case, live: &HostProcess, what: &str) {
    let tagged_processes: Vec<i32> = case.tagged_processes().iter().map(|found| found.pid).collect();
    for worker in &live.workers {
        assert!(tagged_processes.contains(&worker.pid), "{what}: the live run was touched");
    }
    let gone = tagged_processes.len() == live.workers.len();
    assert!(
        gone || case.run_dirs().len() == 2,
        "{what}: the record is gone, but not everybody is: {tagged_processes:?}"
    );
}

fn out_of_descriptors(case: &mut Case) {
    let mut live = live_and_dead(case);
    for limit in 4..=rounds(40, 16) {
        let host = case.host_command();
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={limit}")).arg(host.get_program()).args(host.get_args());
        for (key, value) in host.get_envs() {
            command.env(key, value.expect("a value"));
        }
        let mut host = HostProcess::start(command, &OpenAs::default());
        // With so few descriptors, the cleanup may not even start. Whatever it reports, the live run must stay.
        let _ = host.try_ask(&format!("reap state={}", case.state().display()));
        judge(case, &live, &format!("a cleanup with {limit} descriptors"));
        let opened =
            host.try_ask(&format!("open tier={} state={}", case.tier.name(), case.state().display()));
        if let Some(snakepit_proving::HostReply::Ok(told)) = opened {
            case.note_run(&told["run"]);
        }
        judge_live(case, &live, &format!("a start with {limit} descriptors"));
        host.say("return");
        host.wait();
    }
    live.spawn(1, "stand");
    case.note(&live);
    live.kill();
    case.verdict();
}

fn judge_live(case: &Case, live: &HostProcess, what: &str) {
    let tagged_processes: Vec<i32> = case.tagged_processes().iter().map(|found| found.pid).collect();
    for worker in &live.workers {
        assert!(tagged_processes.contains(&worker.pid), "{what}: the live run was touched");
    }
}

fn every_error_at_every_look(case: &mut Case) {
    let mut live = live_and_dead(case);
    // EPERM, EIO, EMFILE, ENFILE, ENOMEM.
    for errno in [1, 5, 24, 23, 12] {
        for look in snakepit_custody::failpoint_looks() {
            for nth in ["", "@1", "@2", "@5"] {
                let fault = format!("{look}{nth}=errno:{errno}");
                let options = OpenAs { failpoints: Some(fault.clone()), ..OpenAs::default() };
                let mut host = HostProcess::start(case.host_command(), &options);
                let reply = host.ask(&format!("reap state={}", case.state().display()));
                judge(case, &live, &format!("{fault}: {}", reply.words()));
                host.say("return");
                host.wait();
            }
            if case.run_dirs().len() < 2 {
                let mut dead = case.host_with(1, "heir");
                super::kill_all_of_custody(&mut dead);
            }
        }
    }
    live.spawn(1, "stand");
    case.note(&live);
    live.kill();
    case.verdict();
}
