//! Ten thousand spawns leave no zombie, no descriptor and no process.

use snakepit_proving::{Case, rounds};

super::each_tier!(no_leak);

fn no_leak(case: &mut Case) {
    let mut host = case.host();
    let told = host.ask(&format!("churn {} 4", rounds(10_000, 500))).expect("churn");
    assert_eq!(told["zombies"], "0", "{told:?}");
    assert_eq!(told["host_before"], told["host_after"], "descriptors of the host: {told:?}");
    assert_eq!(told["keeper_before"], told["keeper_after"], "descriptors of the keeper: {told:?}");
    assert_eq!(told["shims_before"], told["shims_after"], "shims of the keeper: {told:?}");
    host.ask("stop").expect("stop");
    host.say("return");
    assert!(host.wait().success());
    case.verdict();
}
