//! A worker that KILL cannot reach, in a frozen cgroup of version 1. It is reported as undead with its state, never
//! called a success, and gone after the thaw.

use snakepit_proving::cgroup::TestCgroup;
use snakepit_proving::deadline::recheck;
use snakepit_proving::{Case, Deadline, HostProcess, WorkerLine};

super::each_tier!(when_the_run_is_stopped, when_the_host_is_killed, at_the_next_start);

fn freeze(case: &mut Case) -> Option<(HostProcess, WorkerLine, TestCgroup)> {
    let freezer = TestCgroup::below_ours("freezer")?;
    case.options = case.options.clone().word("retries=3");
    let host = case.host_with(2, "stand");
    let worker = host.workers[0].clone();
    freezer.take(worker.pid);
    freezer.write("freezer.state", "FROZEN");
    recheck(Deadline::patient(), "the freeze", || {
        (freezer.read("freezer.state").trim() == "FROZEN").then_some(())
    });
    Some((host, worker, freezer))
}

fn thaw(freezer: &TestCgroup) {
    freezer.write("freezer.state", "THAWED");
}

fn when_the_run_is_stopped(case: &mut Case) {
    let Some((mut host, worker, freezer)) = freeze(case) else {
        return super::unproven("no freezer cgroup of version 1");
    };
    let told = host.ask("stop 100").expect("stop");
    let undead: Vec<&str> = told["survivors"].split(',').collect();
    assert_eq!(undead, [format!("{}:D", worker.pid)], "{told:?}");
    let left: Vec<i32> = case.tagged_processes().iter().map(|found| found.pid).collect();
    assert_eq!(left, [worker.pid], "the others are gone");
    thaw(&freezer);
    case.workers_must_be_gone(Deadline::patient());
    host.say("return");
    host.wait();
    case.verdict();
}

fn when_the_host_is_killed(case: &mut Case) {
    let Some((mut host, worker, freezer)) = freeze(case) else {
        return super::unproven("no freezer cgroup of version 1");
    };
    let other = snakepit_proving::ObservedProcess::of(host.workers[1].pid);
    host.kill();
    other.must_end("the worker that is not frozen");
    let left: Vec<i32> = case.tagged_processes().iter().map(|found| found.pid).collect();
    assert_eq!(left, [worker.pid]);
    thaw(&freezer);
    case.verdict();
}

/// The reaper of the next start reports the worker, too, and does not hang on it.
fn at_the_next_start(case: &mut Case) {
    let Some((mut host, worker, freezer)) = freeze(case) else {
        return super::unproven("no freezer cgroup of version 1");
    };
    super::kill_all_of_custody_but_wait_for_none(&mut host);
    let told = case.cleanup().expect("the reaper");
    assert!(told["survivors"].contains(&format!("{}:D", worker.pid)), "{told:?}");
    assert_eq!(case.run_dirs().len(), 1, "a run with an undead process is kept");
    thaw(&freezer);
    case.workers_must_be_gone(Deadline::patient());
    case.next_start();
    case.verdict();
}
