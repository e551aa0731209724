//! The pids of a dead run now belong to bystanders, which stay untouched.

use snakepit_proving::deadline::recheck;
use snakepit_proving::reused_pid::ReusedPid;
use snakepit_proving::{Case, Deadline};

super::each_tier!(of_a_dead_run, of_a_worker_that_has_ended);

fn reuse(pid: i32) -> ReusedPid {
    // The pid is free once its last owner has been reaped, and no event reports that.
    recheck(Deadline::patient(), "a chance to reuse the number", || ReusedPid::with_pid(pid))
}

fn of_a_dead_run(case: &mut Case) {
    if let Some(why) = ReusedPid::refusal() {
        return super::unproven(&why);
    }
    let mut host = case.host_with(2, "stand");
    let mut numbers = vec![host.process().pid(), host.keeper.expect("a keeper")];
    numbers.extend(host.workers.iter().flat_map(|worker| [worker.pid, worker.shim]));
    super::kill_everybody(&mut host);
    assert_eq!(case.run_dirs().len(), 1, "the dead run's directory is there");
    let innocents: Vec<ReusedPid> = numbers.into_iter().map(reuse).collect();

    let told = case.cleanup().expect("the reaper");
    let untouched = |when: &str| {
        for reused_pid in &innocents {
            assert!(reused_pid.is_alive(), "{when}: the innocent {} was killed: {told:?}", reused_pid.pid());
        }
    };
    untouched("after the reaper");
    assert_eq!((told["removed"].as_str(), told["killed"].as_str()), ("1", ""), "{told:?}");
    case.next_start();
    untouched("after the next start");
}

fn of_a_worker_that_has_ended(case: &mut Case) {
    if let Some(why) = ReusedPid::refusal() {
        return super::unproven(&why);
    }
    let mut host = case.host();
    let worker = host.spawn(1, "exit 0 0").remove(0);
    host.ask(&format!("wait {}", worker.id)).expect("wait");
    let innocents = [reuse(worker.pid), reuse(worker.shim)];
    // Each of these may be refused, but none may reach the new owner of the pid.
    for order in ["signal {} 9", "kill {}", "stop-one {} 10"] {
        drop(host.ask(&order.replace("{}", &worker.id)));
        for reused_pid in &innocents {
            assert!(reused_pid.is_alive(), "{order}: the innocent {} was killed", reused_pid.pid());
        }
    }
    host.ask("stop").expect("stop");
    host.say("return");
    host.wait();
    for reused_pid in &innocents {
        assert!(reused_pid.is_alive(), "stop: the innocent {} was killed", reused_pid.pid());
    }
    case.verdict();
}
