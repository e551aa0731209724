//! The two kinds of exit: hooks, their timeouts, the status, and what is left of the workers.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use snakepit_proving::deadline::recheck;
use snakepit_proving::{Deadline, ObservedProcess};

use super::{LeaverProcess, many_times};

/// Short enough to wait for, and far from the default.
const LIMIT: &str = "limit 300";
const LIMIT_TIME: Duration = Duration::from_millis(300);

#[test]
fn hooks_run_in_reverse_order_except_removed_ones() {
    many_times(|| {
        let mut leaver = LeaverProcess::start();
        leaver.obey(&["hook a", "hook b", "hook c", "forget b"]);
        leaver.must_answer("forget b", "gone");
        leaver.0.say("exit 3");
        leaver.must_say("hook c");
        leaver.must_say("hook a");
        leaver.must_end_with(3);
        leaver.must_say_nothing_more();
    });
}

#[test]
fn a_hook_that_panics_stops_no_other_and_changes_no_status() {
    many_times(|| {
        let mut leaver = LeaverProcess::start();
        leaver.obey(&["hook a", "hook b panics", "hook c"]);
        leaver.0.say("exit 0");
        for name in ["c", "b", "a"] {
            leaver.must_say(&format!("hook {name}"));
        }
        leaver.must_end_with(0);
    });
}

/// Asserts that an exit with the prepared hooks ends at the limit or soon after it, and not before.
fn must_end_at_the_limit(mut leaver: LeaverProcess, status: i32) {
    let began = Instant::now();
    leaver.0.say(&format!("exit {status}"));
    leaver.must_end_with(status);
    let took = began.elapsed();
    assert!(took >= LIMIT_TIME, "{took:?} is before the limit");
    assert!(took < Duration::from_secs(4), "{took:?} looks like the default, and not like the limit");
}

#[test]
fn a_hanging_hook_is_cut_off_at_the_limit() {
    let mut leaver = LeaverProcess::start();
    leaver.obey(&[LIMIT, "hook never", "hook hang hangs"]);
    must_end_at_the_limit(leaver, 4);
}

#[test]
fn a_hanging_atexit_function_is_cut_off_at_the_limit() {
    let mut leaver = LeaverProcess::start();
    leaver.obey(&[LIMIT, "hang-at-exit"]);
    must_end_at_the_limit(leaver, 5);
}

#[test]
fn an_exit_with_a_full_unread_pipe_is_bounded() {
    let mut leaver = LeaverProcess::start();
    leaver.obey(&[LIMIT]);
    leaver.0.say("fill-stdout");
    must_end_at_the_limit(leaver, 6);
}

#[test]
fn a_full_pipe_does_not_delay_an_immediate_exit() {
    many_times(|| {
        let mut leaver = LeaverProcess::start();
        leaver.obey(&["hook never", "hang-at-exit"]);
        leaver.0.say("fill-stdout");
        leaver.0.say("exit-now 7");
        leaver.must_end_with(7);
    });
}

#[test]
fn an_immediate_exit_runs_no_hooks_and_prints_nothing() {
    many_times(|| {
        let mut leaver = LeaverProcess::start();
        leaver.obey(&["hook never", "hang-at-exit"]);
        leaver.0.say("exit-now 8");
        leaver.must_end_with(8);
        leaver.must_say_nothing_more();
    });
}

#[test]
fn of_two_threads_that_exit_at_once_the_first_one_gives_the_status() {
    many_times(|| {
        let mut leaver = LeaverProcess::start();
        leaver.0.say("exit-by-two-threads");
        let said = leaver.hear();
        let first = said.strip_prefix("left by thread-").expect("a thread that was first");
        leaver.must_end_with(first.parse().expect("a status"));
        leaver.must_say_nothing_more();
    });
}

#[test]
fn an_exit_within_a_hook_does_the_rest_with_the_first_status() {
    many_times(|| {
        let mut leaver = LeaverProcess::start();
        leaver.obey(&["hook a", "hook b exits 99", "hook c asks-another-to-exit 98"]);
        leaver.0.say("exit 9");
        for name in ["c", "b", "a"] {
            leaver.must_say(&format!("hook {name}"));
        }
        leaver.must_end_with(9);
        leaver.must_say_nothing_more();
    });
}

/// Asserts that soon after this exit of the host, its workers and the record of its run are gone.
fn nothing_is_left_after(leave: impl Fn(&mut LeaverProcess)) {
    let state = tempfile::tempdir().expect("a state directory");
    let mut leaver = LeaverProcess::start();
    let worker =
        ObservedProcess::of(leaver.ask(&format!("run {}", state.path().display())).parse().expect("a pid"));
    leave(&mut leaver);
    leaver.wait();
    worker.must_end("the worker");
    recheck(Deadline::patient(), "the end of the run's directory", || {
        let mut runs = std::fs::read_dir(state.path().join("runs")).expect("the runs");
        // This is not a run but an empty directory. The next start removes it.
        runs.all(|run| run.expect("a run").file_name() == ".old").then_some(())
    });
}

#[test]
fn the_keeper_clears_up_after_every_way_out() {
    for _ in 0..snakepit_proving::rounds(10, 1) {
        nothing_is_left_after(|leaver| leaver.0.say("exit 0"));
        nothing_is_left_after(|leaver| leaver.0.say("exit-now 1"));
        nothing_is_left_after(|leaver| {
            leaver.obey(&[LIMIT, "hook hang hangs"]);
            leaver.0.say("exit 2");
        });
        nothing_is_left_after(|leaver| {
            leaver.must_answer("install", "new ignored=[]");
            leaver.obey(&["register drain", "register-now stop"]);
            leaver.signal(Signal::TERM);
            leaver.must_say("called drain on snakepit-drain");
            leaver.signal(Signal::TERM);
            leaver.must_say("called stop on snakepit-stop");
            leaver.signal(Signal::TERM);
        });
    }
}

#[test]
fn a_forked_copy_ends_no_run_of_the_original() {
    let state = tempfile::tempdir().expect("a state directory");
    let mut leaver = LeaverProcess::start();
    let worker =
        ObservedProcess::of(leaver.ask(&format!("run {}", state.path().display())).parse().expect("a pid"));
    leaver.must_answer("end-all-in-a-copy", "ended 0");
    assert!(worker.is_alive());
    leaver.must_answer("end-all 5000", "ended 1");
    assert!(!worker.is_alive());
    leaver.must_answer("end-all 5000", "ended 0");
}
