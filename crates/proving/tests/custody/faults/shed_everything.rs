//! Double fork and setsid with all descriptors closed and an empty environment.

use snakepit_proving::Case;

super::each_tier!(when_the_host_is_killed, when_the_run_is_stopped);

pub(super) fn when_the_host_is_killed(case: &mut Case) {
    let mut host = case.host_with(3, "shed");
    naked_must_be_naked(case);
    host.kill();
    case.verdict();
}

fn when_the_run_is_stopped(case: &mut Case) {
    let mut host = case.host_with(3, "shed");
    naked_must_be_naked(case);
    host.ask("stop 1000").expect("stop");
    case.workers_must_be_gone_already();
    host.say("return");
    host.wait();
    case.verdict();
}

fn naked_must_be_naked(case: &mut Case) {
    case.must_be_populated(12);
    let found = case.tagged_processes();
    let naked = found.iter().filter(|found| found.run.is_none()).count();
    assert_eq!(naked, 9, "{found:#?}");
}
