//! A worker creates a PID namespace and leaves a process there that entered it from outside: orphans of one namespace
//! with a parent in another.

use snakepit_proving::{Case, GridTier};

super::each_tier!(when_the_host_is_killed, when_the_run_is_stopped);

/// The worker, the creator of the namespace, its init, and the process that has entered it.
const PROCESSES: usize = 4;

fn when_the_host_is_killed(case: &mut Case) {
    let mut host = case.host_with(1, "enter");
    case.must_be_populated(PROCESSES);
    host.kill();
    judge(case);
}

fn when_the_run_is_stopped(case: &mut Case) {
    let mut host = case.host_with(1, "enter");
    case.must_be_populated(PROCESSES);
    host.ask("stop 100").expect("stop");
    host.say("return");
    host.wait();
    judge(case);
}

/// In the group tier, the init is killed with its group, and with it the processes that left the group.
fn judge(case: &mut Case) {
    if case.tier == GridTier::Group {
        assert!(
            case.tag().is_free_before(snakepit_proving::Deadline::patient()),
            "{:#?}",
            case.tagged_processes()
        );
        return;
    }
    case.verdict();
}
