//! Sixteen chains that fork and setsid as fast as they can, during a stop and during the host's end.

use snakepit_proving::Case;

super::each_tier!(during_a_stop, while_the_host_is_killed);

pub(super) fn during_a_stop(case: &mut Case) {
    let mut host = case.host_with(1, "chains");
    case.must_be_populated(2);
    host.ask("stop 200").expect("stop");
    case.workers_must_be_gone_already();
    host.say("return");
    host.wait();
    case.verdict();
}

fn while_the_host_is_killed(case: &mut Case) {
    let mut host = case.host_with(1, "chains");
    case.must_be_populated(2);
    host.kill();
    case.verdict();
}
