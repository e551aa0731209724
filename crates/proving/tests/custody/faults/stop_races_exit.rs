//! A stop races a worker's own exit. All callers get the same status, and nothing is killed twice.

use snakepit_proving::{Case, rounds};

super::each_tier!(many_rounds);

fn many_rounds(case: &mut Case) {
    let rounds = rounds(400, 60);
    let mut host = case.host();
    let told = host.ask(&format!("race {rounds}")).expect("race");
    assert_eq!(told["wrong"], "", "{told:?}");
    let count = |key: &str| told[key].parse::<usize>().expect("a count");
    assert_eq!(count("natural") + count("stopped"), rounds);
    assert!(count("natural") > 0 && count("stopped") > 0, "it was no race: {told:?}");
    host.ask("stop").expect("stop");
    host.say("return");
    assert!(host.wait().success());
    case.verdict();
}
