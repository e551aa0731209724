//! Workers that ignore TERM, INT and HUP.

use snakepit_proving::Case;

super::each_tier!(when_the_host_is_killed, when_the_run_is_stopped, when_one_is_stopped);

fn when_the_host_is_killed(case: &mut Case) {
    let mut host = case.host_with(3, "deaf");
    case.must_be_populated(3);
    host.kill();
    case.verdict();
}

pub(super) fn when_the_run_is_stopped(case: &mut Case) {
    let mut host = case.host_with(3, "deaf");
    case.must_be_populated(3);
    let told = host.ask("stop 300").expect("stop");
    case.workers_must_be_gone_already();
    assert_eq!((told["killed"].as_str(), told["survivors"].as_str()), ("3", ""), "{told:?}");
    let micros: u64 = told["micros"].parse().expect("microseconds");
    assert!(micros >= 300_000, "the grace was cut short: {told:?}");
    host.say("return");
    host.wait();
    case.verdict();
}

fn when_one_is_stopped(case: &mut Case) {
    let mut host = case.host_with(2, "deaf");
    let [first, second] = [host.workers[0].clone(), host.workers[1].clone()];
    let told = host.ask(&format!("stop-one {} 100", first.id)).expect("stop one");
    assert_eq!(told["killed"], "1", "{told:?}");
    let told = host.ask(&format!("wait {}", first.id)).expect("wait");
    assert_eq!(told.get("signal").map(String::as_str), Some("9"), "{told:?}");
    let left: Vec<i32> = case.tagged_processes().iter().map(|found| found.pid).collect();
    assert_eq!(left, [second.pid], "the other one lives on");
    host.kill();
    case.verdict();
}
