//! `kill -9` of host and keeper at the same moment: only the shims are left to act.

use rustix::process::Signal;
use snakepit_proving::Case;

super::each_tier!(host_and_keeper, keeper_first);

pub(super) fn host_and_keeper(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    let keeper = host.keeper_process();
    super::hold_still([host.process(), &keeper]);
    keeper.signal(Signal::KILL);
    host.kill();
    case.verdict();
}

fn keeper_first(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    // The host has a moment to notice, and sweeps.
    case.who_left_may_end();
    host.keeper_process().end();
    host.kill();
    case.verdict();
}
