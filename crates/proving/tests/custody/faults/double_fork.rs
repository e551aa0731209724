//! Double fork and setsid: the textbook daemon.

use snakepit_proving::Case;

super::each_tier!(when_the_host_is_killed, when_the_run_is_stopped);

pub(super) fn when_the_host_is_killed(case: &mut Case) {
    let mut host = case.host_with(3, "daemon");
    case.must_be_populated(12);
    host.kill();
    case.verdict();
}

fn when_the_run_is_stopped(case: &mut Case) {
    let mut host = case.host_with(3, "daemon");
    case.must_be_populated(12);
    host.ask("stop 1000").expect("stop");
    case.workers_must_be_gone_already();
    host.say("return");
    host.wait();
    case.verdict();
}
