//! The host panics where unwinding is impossible, and aborts.

use std::os::unix::process::ExitStatusExt;

use snakepit_proving::Case;

super::each_tier!(panic_that_aborts);

pub(super) fn panic_that_aborts(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    host.say("panic-abort");
    assert_eq!(host.wait().signal(), Some(libc::SIGABRT));
    case.verdict();
}
