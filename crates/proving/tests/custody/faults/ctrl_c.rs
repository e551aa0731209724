//! Ctrl-C on a real terminal ends the host by SIGINT.

use snakepit_proving::pty::PseudoTerminal;
use snakepit_proving::{Case, HostProcess};

super::each_tier!(in_a_session_of_its_own, in_the_callers_session);

fn in_a_session_of_its_own(case: &mut Case) {
    press(case, 0x03, libc::SIGINT);
}

fn in_the_callers_session(case: &mut Case) {
    case.options = case.options.clone().word("session=caller");
    press(case, 0x03, libc::SIGINT);
}

/// Starts a host in the foreground of a terminal, with three families.
pub(super) fn host_on_a_terminal(case: &mut Case) -> (HostProcess, PseudoTerminal) {
    let mut terminal = PseudoTerminal::open().expect("a pseudo-terminal");
    let mut command = case.host_command();
    terminal.lead(&mut command);
    let mut host = HostProcess::start(command, &case.options);
    terminal.started();
    case.open(&mut host);
    host.spawn(3, "family");
    case.note(&host);
    case.must_be_populated(9);
    (host, terminal)
}

/// Types a key and expects the host to die of this signal.
pub(super) fn press(case: &mut Case, key: u8, signal: i32) {
    let (mut host, terminal) = host_on_a_terminal(case);
    terminal.press(key);
    let status = host.wait();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(signal));
    case.verdict();
}
