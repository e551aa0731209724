//! SIGSTOP of keeper and shims, then `kill -9` of the host. In the namespace tier, the kernel alone ends everything.
//! Elsewhere, the next start does, or the stopped processes once they continue.

use rustix::process::Signal;
use snakepit_proving::{Case, Deadline};

super::each_tier!(never_continued, continued);

fn stopped_then_killed(case: &mut Case) -> Vec<snakepit_proving::ObservedProcess> {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    let keeper = host.keeper_process();
    super::hold_still([&keeper]);
    let mut stopped = host.shims();
    super::hold_still(&stopped);
    stopped.push(keeper);
    host.kill();
    stopped
}

pub(super) fn never_continued(case: &mut Case) {
    stopped_then_killed(case);
    case.verdict();
}

fn continued(case: &mut Case) {
    for process in stopped_then_killed(case) {
        process.signal(Signal::CONT);
    }
    case.workers_must_be_gone(Deadline::patient());
    case.custody_must_be_gone(Deadline::patient());
}
