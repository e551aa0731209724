//! The terminal hangs up: the host, which leads the session, gets SIGHUP.

use std::os::unix::process::ExitStatusExt;

use snakepit_proving::Case;

super::each_tier!(in_a_session_of_its_own, in_the_callers_session);

fn in_a_session_of_its_own(case: &mut Case) {
    hang_up(case);
}

fn in_the_callers_session(case: &mut Case) {
    case.options = case.options.clone().word("session=caller");
    hang_up(case);
}

fn hang_up(case: &mut Case) {
    let (mut host, terminal) = super::ctrl_c::host_on_a_terminal(case);
    drop(terminal);
    assert_eq!(host.wait().signal(), Some(libc::SIGHUP));
    case.verdict();
}
