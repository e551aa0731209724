//! A worker exits and leaves children. They are gone before `wait` returns.

use snakepit_proving::{Case, GridTier};

super::each_tier!(gone_before_wait_returns);

pub(super) fn gone_before_wait_returns(case: &mut Case) {
    let mut host = case.host();
    for _ in 0..snakepit_proving::rounds(20, 5) {
        let worker = host.spawn(1, "leave").remove(0);
        case.note(&host);
        let told = host.ask(&format!("wait {}", worker.id)).expect("wait");
        case.workers_must_be_gone_already();
        // One of its two children has left the group.
        let survivors = usize::from(case.tier == GridTier::Group);
        assert_eq!(case.tagged_processes().len(), survivors, "survivors: {:#?}", case.tagged_processes());
        assert_eq!(told.get("code").map(String::as_str), Some("5"), "{told:?}");
        case.end_survivors_and_go_on();
    }
    host.ask("stop").expect("stop");
    host.say("return");
    assert!(host.wait().success());
    case.verdict();
}
