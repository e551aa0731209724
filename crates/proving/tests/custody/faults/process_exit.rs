//! The host calls `process::exit`. Nothing is dropped, nothing unwinds.

use snakepit_proving::Case;

super::each_tier!(process_exit);

pub(super) fn process_exit(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    host.say("process-exit");
    assert_eq!(host.wait().code(), Some(7));
    case.verdict();
}
