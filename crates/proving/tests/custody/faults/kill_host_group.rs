//! `kill -9` of the host's whole process group. The keeper is not in it.

use rustix::process::{Pid, Signal, getpgid, kill_process_group};
use snakepit_proving::Case;

super::each_tier!(in_a_session_of_its_own, in_the_callers_session);

fn in_a_session_of_its_own(case: &mut Case) {
    kill_group(case);
}

fn in_the_callers_session(case: &mut Case) {
    case.options = case.options.clone().word("session=caller");
    kill_group(case);
}

fn kill_group(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    let pid = Pid::from_raw(host.process().pid()).expect("a pid");
    // The harness made the host the leader of a group. Any other group would include the test itself.
    assert_eq!(getpgid(Some(pid)).expect("getpgid"), pid);
    kill_process_group(pid, Signal::KILL).expect("kill the group");
    host.wait();
    case.verdict();
}
