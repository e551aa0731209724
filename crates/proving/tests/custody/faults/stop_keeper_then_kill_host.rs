//! SIGSTOP of the keeper, then `kill -9` of the host: the shims notice without the keeper.

use rustix::process::Signal;
use snakepit_proving::{Case, Deadline};

super::each_tier!(stopped_keeper);

pub(super) fn stopped_keeper(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    let keeper = host.keeper_process();
    super::hold_still([&keeper]);
    host.kill();
    case.workers_must_be_gone(Deadline::patient());
    // Only now may the keeper continue. It finds no process and ends.
    keeper.signal(Signal::CONT);
    case.verdict();
}
