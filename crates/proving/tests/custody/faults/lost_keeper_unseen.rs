//! The keeper dies while the host is out of descriptors and cannot look for the processes that the keeper left. The
//! defect behind this test: the host closed the records of living processes, and never looked again.

use rustix::process::{Pid, Resource, Rlimit, Signal};
use snakepit_proving::{Case, Deadline};

super::each_tier!(looked_for_again);

fn looked_for_again(case: &mut Case) {
    let mut host = case.host_with(2, "heir");
    let pid = Pid::from_raw(host.process().pid());
    let limit = |current| Rlimit { current: Some(current), maximum: Some(4096) };
    rustix::process::prlimit(pid, Resource::Nofile, limit(3)).expect("prlimit");
    let keeper = host.keeper_process();
    let shims = host.shims();
    snakepit_proving::pidfd::hold_still(shims.iter().chain([&keeper]));
    for process in shims.iter().chain([&keeper]) {
        process.signal(Signal::KILL);
    }
    let event = host.ask("await-event ReapTrouble").expect("the event");
    assert!(event["event"].contains("cannot_inspect"), "{event:?}");
    rustix::process::prlimit(pid, Resource::Nofile, limit(1024)).expect("prlimit");
    case.workers_must_be_gone(Deadline::patient());
    for worker in host.workers.clone() {
        host.ask(&format!("wait {}", worker.id)).expect("its end is told");
    }
    host.ask("stop").expect("stop");
    host.say("return");
    host.wait();
    case.verdict();
}
