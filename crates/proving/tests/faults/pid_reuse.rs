//! The numbers of a dead run's processes belong to innocents by now: they are untouched.

use snakepit_proving::deadline::recheck;
use snakepit_proving::innocent::Innocent;
use snakepit_proving::{Case, Deadline};

super::each_tier!(of_a_dead_run, of_a_worker_that_has_ended);

fn reuse(pid: i32) -> Innocent {
    // The number is free once its last owner has been reaped, of which we are not told.
    recheck(Deadline::patient(), "a chance to reuse the number", || Innocent::with_pid(pid))
}

fn of_a_dead_run(case: &mut Case) {
    if let Some(why) = Innocent::refusal() {
        return super::unproven(&why);
    }
    let mut host = case.host_with(2, "stand");
    let mut numbers = vec![host.process().pid(), host.keeper.expect("a keeper")];
    numbers.extend(host.workers.iter().flat_map(|worker| [worker.pid, worker.shim]));
    super::kill_everybody(&mut host);
    assert_eq!(case.run_dirs().len(), 1, "the dead run's directory is there");
    let innocents: Vec<Innocent> = numbers.into_iter().map(reuse).collect();

    let told = case.cleanup().expect("the reaper");
    let untouched = |when: &str| {
        for innocent in &innocents {
            assert!(innocent.is_alive(), "{when}: the innocent {} was killed: {told:?}", innocent.pid());
        }
    };
    untouched("after the reaper");
    assert_eq!((told["removed"].as_str(), told["killed"].as_str()), ("1", ""), "{told:?}");
    case.next_start();
    untouched("after the next start");
}

fn of_a_worker_that_has_ended(case: &mut Case) {
    if let Some(why) = Innocent::refusal() {
        return super::unproven(&why);
    }
    let mut host = case.host();
    let worker = host.spawn(1, "exit 0 0").remove(0);
    host.ask(&format!("wait {}", worker.id)).expect("wait");
    let innocents = [reuse(worker.pid), reuse(worker.shim)];
    // Each of these may be refused; none may reach the number's new owner.
    for order in ["signal {} 9", "kill {}", "stop-one {} 10"] {
        drop(host.ask(&order.replace("{}", &worker.id)));
        for innocent in &innocents {
            assert!(innocent.is_alive(), "{order}: the innocent {} was killed", innocent.pid());
        }
    }
    host.ask("stop").expect("stop");
    host.say("return");
    host.wait();
    for innocent in &innocents {
        assert!(innocent.is_alive(), "stop: the innocent {} was killed", innocent.pid());
    }
    case.verdict();
}
