//! The host panics and unwinds out of `main`.

use snakepit_proving::Case;

super::each_tier!(panic_that_unwinds);

pub(super) fn panic_that_unwinds(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    host.say("panic");
    assert_eq!(host.wait().code(), Some(101));
    case.workers_must_be_gone_already();
    case.verdict();
}
