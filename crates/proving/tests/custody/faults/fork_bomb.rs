//! A bounded fork bomb: 255 processes, some of which leave the group.

use snakepit_proving::Case;

super::each_tier!(when_the_host_is_killed, when_the_run_is_stopped);

fn when_the_host_is_killed(case: &mut Case) {
    let mut host = case.host_with(1, "bomb");
    case.must_be_populated(255);
    host.kill();
    case.verdict();
}

fn when_the_run_is_stopped(case: &mut Case) {
    let mut host = case.host_with(1, "bomb");
    case.must_be_populated(255);
    host.ask("stop 1000").expect("stop");
    case.workers_must_be_gone_already();
    host.say("return");
    host.wait();
    case.verdict();
}
