//! The spare process that waits at the gate is killed. It gets no order any more, and the next spawn gets another
//! process.

use snakepit_proving::deadline::recheck;
use snakepit_proving::{Case, Deadline, HostProcess, ObservedProcess, census};

super::each_tier!(and_its_shim_sees_it, while_its_shim_is_stopped, together_with_its_shim);

fn and_its_shim_sees_it(case: &mut Case) {
    let mut host = case.host();
    let (shim, waiting) = spare(&host);
    waiting.end();
    shim.must_end("the shim of a process that was killed");
    must_go_on(case, &mut host);
}

/// The keeper has learned of the process's end, but not of the shim's.
fn while_its_shim_is_stopped(case: &mut Case) {
    let mut host = case.host();
    let (shim, waiting) = spare(&host);
    super::hold_still([&shim]);
    waiting.end();
    must_go_on(case, &mut host);
}

fn together_with_its_shim(case: &mut Case) {
    let mut host = case.host();
    let (shim, waiting) = spare(&host);
    shim.end();
    waiting.must_end("a process whose shim was killed");
    must_go_on(case, &mut host);
}

fn must_go_on(case: &mut Case, host: &mut HostProcess) {
    host.spawn(2, "stand");
    case.note(host);
    case.must_be_populated(2);
    let told = host.ask("stop").expect("stop");
    assert_eq!((told["stopped"].as_str(), told["survivors"].as_str()), ("2", ""), "{told:?}");
    host.say("return");
    assert!(host.wait().success());
    case.verdict();
}

/// Returns the only shim of a run without workers and the process at its gate, once that process waits there.
pub(super) fn spare(host: &HostProcess) -> (ObservedProcess, ObservedProcess) {
    recheck(Deadline::patient(), "a process at the gate", || {
        let shim = host.shims().pop()?;
        let waiting = census::children(shim.pid()).pop()?;
        // The process creates its own session before it tells the keeper that it waits.
        let waits = waiting.pgid == waiting.pid && is_blocked_in_receive(waiting.pid);
        waits.then(|| Some((shim, ObservedProcess::open(waiting.pid).expect("pidfd_open")?)))?
    })
}

fn is_blocked_in_receive(pid: i32) -> bool {
    let number = libc::SYS_recvmsg.to_string();
    std::fs::read_to_string(format!("/proc/{pid}/syscall"))
        .is_ok_and(|call| call.split(' ').next() == Some(&number))
}
