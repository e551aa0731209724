//! The kernel kills one worker for its memory, inside a memory cgroup. The others and the host live on.

use snakepit_proving::Case;
use snakepit_proving::cgroup::TestCgroup;

super::each_tier!(out_of_memory);

fn out_of_memory(case: &mut Case) {
    let Some(memory) = TestCgroup::with_memory_limit(super::oom_host::LIMIT) else {
        return super::unproven("no memory cgroup that we may create");
    };
    let mut host = case.bare_host();
    memory.take(host.process().pid());
    case.open(&mut host);
    host.spawn(3, "family");
    let eater = host.spawn(1, "eater").remove(0);
    case.note(&host);
    let told = host.ask(&format!("wait {}", eater.id)).expect("wait for the eater");
    assert_eq!(told.get("signal").map(String::as_str), Some("9"), "{told:?}");
    let siblings = case.tagged_processes();
    assert_eq!(siblings.len(), 9, "the siblings are unaffected: {siblings:#?}");
    host.spawn(1, "family");
    case.note(&host);
    case.must_be_populated(12);
    host.ask("stop").expect("stop");
    case.workers_must_be_gone_already();
    host.say("return");
    assert!(host.wait().success());
    case.verdict();
    case.end_allowed_survivors();
}
