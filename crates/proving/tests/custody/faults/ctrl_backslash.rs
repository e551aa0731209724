//! Ctrl-\ on a real terminal ends the host by SIGQUIT.

use snakepit_proving::Case;

super::each_tier!(in_a_session_of_its_own, in_the_callers_session);

fn in_a_session_of_its_own(case: &mut Case) {
    super::ctrl_c::press(case, 0x1c, libc::SIGQUIT);
}

fn in_the_callers_session(case: &mut Case) {
    case.options = case.options.clone().word("session=caller");
    super::ctrl_c::press(case, 0x1c, libc::SIGQUIT);
}
