//! A worker that becomes another user. The kernel then forgets the worker's parent-death signal.

use snakepit_proving::{Case, Deadline, other_user};

super::each_tier!(when_the_host_is_killed, when_host_and_keeper_are_killed, when_the_run_is_stopped);

fn when_the_host_is_killed(case: &mut Case) {
    if let Some(why) = other_user::refusal() {
        return super::unproven(&why);
    }
    let mut host = case.host_with(3, "credentials");
    case.must_be_populated(6);
    host.kill();
    case.verdict();
}

fn when_host_and_keeper_are_killed(case: &mut Case) {
    if let Some(why) = other_user::refusal() {
        return super::unproven(&why);
    }
    let mut host = case.host_with(3, "credentials");
    case.must_be_populated(6);
    let keeper = host.keeper_process();
    super::hold_still([host.process(), &keeper]);
    keeper.end();
    host.kill();
    case.workers_must_be_gone(Deadline::patient());
    case.verdict();
}

fn when_the_run_is_stopped(case: &mut Case) {
    if let Some(why) = other_user::refusal() {
        return super::unproven(&why);
    }
    let mut host = case.host_with(3, "credentials");
    let told = host.ask("stop 20000").expect("stop");
    assert_eq!((told["killed"].as_str(), told["survivors"].as_str()), ("0", ""), "{told:?}");
    case.workers_must_be_gone_already();
    host.say("return");
    host.wait();
    case.verdict();
}
