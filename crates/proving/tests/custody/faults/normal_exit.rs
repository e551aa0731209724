//! The host returns from `main`. Dropping the run ends it.

use snakepit_proving::Case;

super::each_tier!(main_returns, main_returns_after_a_stop);

fn main_returns(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    host.say("return");
    assert!(host.wait().success());
    case.workers_must_be_gone_already();
    case.verdict();
}

pub(super) fn main_returns_after_a_stop(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    let told = host.ask("stop").expect("stop");
    case.workers_must_be_gone_already();
    assert_eq!((told["stopped"].as_str(), told["survivors"].as_str()), ("3", ""), "{told:?}");
    assert!(case.run_dirs().is_empty(), "a clean stop removes the run's directory");
    host.say("return");
    assert!(host.wait().success());
    case.verdict();
}
