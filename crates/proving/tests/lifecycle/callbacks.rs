//! Which callbacks a signal runs, in which order and on which thread.

use rustix::process::Signal;

use super::{LeaverProcess, many_times};

#[test]
fn callbacks_are_called_in_the_order_of_their_registration() {
    many_times(|| {
        let mut leaver = LeaverProcess::installed();
        let names = ["a", "b", "c", "d", "e"];
        for name in names {
            leaver.obey(&[&format!("register {name}")]);
        }
        leaver.signal(Signal::TERM);
        for name in names {
            leaver.must_say(&format!("called {name} on snakepit-drain"));
        }
        leaver.must_answer("stage", "draining 15");
    });
}

#[test]
fn a_callback_that_panics_stops_no_other() {
    many_times(|| {
        let mut leaver = LeaverProcess::installed();
        leaver.obey(&["register a", "register-panicking b", "register c"]);
        leaver.signal(Signal::INT);
        for name in ["a", "b", "c"] {
            leaver.must_say(&format!("called {name} on snakepit-drain"));
        }
        leaver.must_answer("stage", "draining 2");
    });
}

#[test]
fn an_unregistered_callback_is_not_called() {
    many_times(|| {
        let mut leaver = LeaverProcess::installed();
        leaver.obey(&["register a", "register b", "register c", "register-now d", "register-now e"]);
        leaver.obey(&["unregister b", "unregister d"]);
        leaver.must_answer("unregister b", "gone");
        leaver.signal(Signal::TERM);
        leaver.must_say("called a on snakepit-drain");
        leaver.must_say("called c on snakepit-drain");
        leaver.must_answer("unregister c", "gone");
        leaver.signal(Signal::TERM);
        leaver.must_say("called e on snakepit-stop");
    });
}

#[test]
fn a_callback_that_waits_behind_a_hanging_one_can_be_unregistered() {
    let mut leaver = LeaverProcess::installed();
    leaver.obey(&["register-hanging a", "register b"]);
    leaver.signal(Signal::TERM);
    leaver.must_say("called a on snakepit-drain");
    leaver.must_answer("unregister a", "gone");
    leaver.obey(&["unregister b"]);
}

#[test]
fn a_callback_registered_after_the_signal_runs_at_once_on_the_callers_thread() {
    many_times(|| {
        let mut leaver = LeaverProcess::installed();
        leaver.obey(&["register a", "register-now stop"]);
        leaver.signal(Signal::TERM);
        leaver.must_say("called a on snakepit-drain");
        leaver.must_answer("register b", "called b on main");
        leaver.must_say("ok");
        // The second signal has not come yet.
        leaver.obey(&["register-now c"]);
        leaver.signal(Signal::TERM);
        leaver.must_say("called stop on snakepit-stop");
        leaver.must_say("called c on snakepit-stop");
        leaver.must_answer("register-now d", "called d on main");
        leaver.must_say("ok");
        leaver.must_answer("register-panicking e", "called e on main");
        leaver.must_say("ok");
    });
}

#[test]
fn after_a_reset_no_callback_runs_and_the_next_coordinator_starts_afresh() {
    many_times(|| {
        let mut leaver = LeaverProcess::installed();
        leaver.obey(&["register a"]);
        leaver.must_answer("install", "same ignored=[]");
        leaver.must_answer("installed", "yes");
        leaver.obey(&["reset", "reset"]);
        leaver.must_answer("installed", "no");
        leaver.must_answer("trigger", "ignored");
        leaver.must_answer("install", "new ignored=[]");
        leaver.obey(&["register b"]);
        leaver.signal(Signal::TERM);
        leaver.must_say("called b on snakepit-drain");
        // A coordinator that has been triggered can also be reset.
        leaver.obey(&["reset"]);
        leaver.must_answer("install", "new ignored=[]");
        leaver.must_answer("stage", "running");
    });
}

#[test]
fn a_thousand_resets_leave_no_descriptor_and_no_thread() {
    let mut leaver = LeaverProcess::installed();
    let count = |leaver: &LeaverProcess, what: &str| {
        let pid = leaver.0.process().pid();
        std::fs::read_dir(format!("/proc/{pid}/{what}")).expect("the process lives").count()
    };
    let descriptors = count(&leaver, "fd");
    for _ in 0..snakepit_proving::rounds(1000, 100) {
        leaver.obey(&["reset"]);
        leaver.must_answer("install", "new ignored=[]");
    }
    assert_eq!(count(&leaver, "fd"), descriptors);
    // The main thread and the three threads of the last coordinator, once the threads of the earlier ones have ended.
    let deadline = snakepit_proving::Deadline::patient();
    snakepit_proving::deadline::recheck(deadline, "the end of its threads", || {
        (count(&leaver, "task") == 4).then_some(())
    });
}
