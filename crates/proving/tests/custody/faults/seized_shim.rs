//! A daemon of a worker seizes the shim with ptrace and holds it: the shim notices neither its worker's end nor any
//! order. The keeper notices both, and ends the shim. The promise: nothing hangs, and nothing outlives its owner.

use std::time::{Duration, Instant};

use snakepit_proving::Case;

/// The keeper waits about a second for a shim that does not run.
const IN_TIME: Duration = Duration::from_secs(8);

super::each_tier!(
    when_the_worker_ends,
    when_the_worker_is_killed,
    when_the_run_is_stopped,
    when_the_host_is_killed
);

fn when_the_worker_ends(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("only root may seize its parent everywhere");
    }
    let mut host = case.host_with(1, "seize leave");
    let began = Instant::now();
    host.ask(&format!("wait {}", host.workers[0].id)).expect("wait");
    assert!(began.elapsed() < IN_TIME, "wait took {:?}", began.elapsed());
    case.workers_must_be_gone(snakepit_proving::Deadline::patient());
    let group = host.workers[0].pgid;
    let of_group = |found: &snakepit_proving::CensusEntry| {
        rustix::process::Pid::from_raw(found.pid).is_some_and(|pid| {
            rustix::process::getpgid(Some(pid)).is_ok_and(|own| own.as_raw_nonzero().get() == group)
        })
    };
    let left: Vec<_> = case.tagged_processes().into_iter().filter(of_group).collect();
    assert!(left.is_empty(), "of the worker's group: {left:#?}");
    host.spawn(1, "stand");
    host.ask("stop").expect("stop");
    host.say("return");
    host.wait();
    case.verdict();
}

fn when_the_worker_is_killed(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("only root may seize its parent everywhere");
    }
    let mut host = case.host_with(1, "seize stay");
    let worker = host.workers[0].id.clone();
    let began = Instant::now();
    host.ask(&format!("kill {worker}")).expect("kill");
    host.ask(&format!("wait {worker}")).expect("wait");
    assert!(began.elapsed() < IN_TIME, "kill took {:?}", began.elapsed());
    host.ask("stop").expect("stop");
    host.say("return");
    host.wait();
    case.verdict();
}

fn when_the_run_is_stopped(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("only root may seize its parent everywhere");
    }
    let mut host = case.host_with(1, "seize stay");
    let began = Instant::now();
    let told = host.ask("stop 100").expect("stop");
    assert!(began.elapsed() < IN_TIME, "stop took {:?}", began.elapsed());
    assert_eq!(told["survivors"], "", "{told:?}");
    host.say("return");
    host.wait();
    case.verdict();
}

fn when_the_host_is_killed(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("only root may seize its parent everywhere");
    }
    let mut host = case.host_with(1, "seize stay");
    host.kill();
    case.verdict();
}
