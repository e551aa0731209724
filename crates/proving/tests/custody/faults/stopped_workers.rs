//! Workers that are stopped. TERM stays pending for them, KILL does not.

use snakepit_proving::deadline::recheck;
use snakepit_proving::{Case, Deadline, HostProcess};

super::each_tier!(then_the_host_is_killed, then_the_run_is_stopped);

fn stopped(case: &mut Case) -> HostProcess {
    let host = case.host_with(3, "stopped");
    case.must_be_populated(6);
    recheck(Deadline::patient(), "the workers' stop", || {
        case.tagged_processes().iter().all(|found| found.state == 'T').then_some(())
    });
    host
}

pub(super) fn then_the_host_is_killed(case: &mut Case) {
    let mut host = stopped(case);
    host.kill();
    case.verdict();
}

pub(super) fn then_the_run_is_stopped(case: &mut Case) {
    let mut host = stopped(case);
    // CONT comes with TERM: the workers end within the grace period, and none needs KILL.
    let told = host.ask("stop 20000").expect("stop");
    assert_eq!((told["killed"].as_str(), told["survivors"].as_str()), ("0", ""), "{told:?}");
    case.workers_must_be_gone_already();
    host.say("return");
    host.wait();
    case.verdict();
}
