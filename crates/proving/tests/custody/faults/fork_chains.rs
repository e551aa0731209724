//! Sixteen chains that fork and setsid as fast as they can, during a stop and during the host's end.

use snakepit_proving::deadline::recheck;
use snakepit_proving::{Case, Deadline, census};

super::each_tier!(during_a_stop, while_the_host_is_killed);

pub(super) fn during_a_stop(case: &mut Case) {
    let mut host = case.host_with(1, "chains");
    must_breed(case);
    host.ask("stop 200").expect("stop");
    case.workers_must_be_gone_already();
    host.say("return");
    host.wait();
    case.verdict();
}

fn while_the_host_is_killed(case: &mut Case) {
    let mut host = case.host_with(1, "chains");
    must_breed(case);
    host.kill();
    case.verdict();
}

/// Asserts that the chains fork. No list is complete meanwhile, so the machine's own count of forks must show it.
fn must_breed(case: &Case) {
    let before = census::births();
    recheck(Deadline::patient(), "a thousand births", || (census::births() > before + 1000).then_some(()));
    assert!(!case.tag().is_free(), "the chains ended by themselves");
}
