//! A foreign debugger holds a child of a worker. When the child is dead, it cannot be reaped before the debugger
//! detaches. The promise: nothing hangs. In another case, the debugger holds the keeper for longer than KILL is
//! repeated. The promise: a process that is gone is not reported as a survivor.

use std::time::{Duration, Instant};

use snakepit_proving::deadline::let_pass;
use snakepit_proving::tracer::Tracer;
use snakepit_proving::{Case, Deadline, GridTier, HostReply};

const IN_TIME: Duration = Duration::from_secs(8);

super::each_tier!(when_the_worker_is_killed, when_the_run_is_stopped, when_it_is_the_keeper);

/// Reports whether the tier is the namespace tier, in which the kernel itself waits until every process is reaped.
fn is_the_kernels(case: &Case) -> bool {
    let is_namespace = case.tier == GridTier::Namespace;
    if is_namespace {
        super::unproven("the kernel ends a PID namespace only when all of its processes are reaped");
    }
    is_namespace
}

fn when_the_worker_is_killed(case: &mut Case) {
    if is_the_kernels(case) {
        return;
    }
    let mut host = case.host_with(1, "bare");
    let worker = host.workers[0].clone();
    let Some(held) = hold_a_child(case, worker.pid) else { return };
    let began = Instant::now();
    host.ask(&format!("kill {}", worker.id)).expect("kill");
    host.ask(&format!("wait {}", worker.id)).expect("wait");
    assert!(began.elapsed() < IN_TIME, "wait took {:?}", began.elapsed());
    host.spawn(1, "stand");
    host.ask("stop").expect("stop");
    host.say("return");
    host.wait();
    held.let_go();
    case.verdict();
}

fn when_the_run_is_stopped(case: &mut Case) {
    if is_the_kernels(case) {
        return;
    }
    let mut host = case.host_with(1, "bare");
    let Some(held) = hold_a_child(case, host.workers[0].pid) else { return };
    let began = Instant::now();
    let told = host.ask("stop 100").expect("stop");
    assert!(began.elapsed() < IN_TIME, "stop took {:?}", began.elapsed());
    assert_eq!(told["survivors"], "", "{told:?}");
    host.say("return");
    host.wait();
    held.let_go();
    case.verdict();
}

fn when_it_is_the_keeper(case: &mut Case) {
    let mut host = case.host_with(1, "stand");
    let held = match Tracer::seize(host.keeper_process().pid()) {
        Ok(held) => held,
        Err(error) => return super::unproven(&format!("no process may be traced here: {error}")),
    };
    host.say("stop 100");
    // Waits for the CONT that the host sends.
    held.await_stop();
    case.workers_must_be_gone(Deadline::patient());
    // KILL is repeated ten times, every tenth of a second.
    let_pass(Duration::from_millis(1500));
    held.detach();
    let told = HostReply::parse(&host.hear().expect("an answer")).expect("stop");
    assert_eq!(told["survivors"], "", "{told:?}");
    host.say("return");
    host.wait();
    case.verdict();
}

fn hold_a_child(case: &mut Case, worker: i32) -> Option<Tracer> {
    case.must_be_populated(2);
    let child = case.tagged_processes().into_iter().find(|found| found.pid != worker).expect("a child");
    let held = Tracer::seize(child.pid);
    if let Err(error) = &held {
        super::unproven(&format!("no process may be traced here: {error}"));
    }
    held.ok()
}
