//! The first signal drains, the second stops now, the third ends the process, whatever hangs.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use super::{LeaverProcess, many_times};

const ON_DRAIN: &str = "called drain on snakepit-drain";
const ON_STOP: &str = "called stop on snakepit-stop";

/// Starts a host with a callback for the first signal and one for the second.
fn with_callbacks() -> LeaverProcess {
    let mut leaver = LeaverProcess::installed();
    leaver.obey(&["register drain", "register-now stop"]);
    leaver
}

#[test]
fn each_signal_advances_one_stage() {
    many_times(|| {
        let mut leaver = LeaverProcess::installed();
        leaver.must_answer("stage", "running");
        leaver.obey(&["await draining"]);
        leaver.signal(Signal::TERM);
        leaver.must_say("reached draining 15");
        leaver.must_answer("stage", "draining 15");
        leaver.obey(&["await stop-now"]);
        leaver.signal(Signal::TERM);
        leaver.must_say("reached stop-now 15");
        leaver.must_answer("stage", "stop-now 15");
        // A stage that has been passed counts as reached.
        leaver.obey(&["await draining"]);
        leaver.must_say("reached stop-now 15");
        leaver.signal(Signal::TERM);
        leaver.must_end_with(143);
        leaver.must_say_nothing_more();
    });
}

#[test]
fn different_signals_count_together() {
    many_times(|| {
        let mut leaver = with_callbacks();
        leaver.signal(Signal::INT);
        leaver.must_say(ON_DRAIN);
        leaver.must_answer("stage", "draining 2");
        leaver.signal(Signal::TERM);
        leaver.must_say(ON_STOP);
        leaver.must_answer("stage", "stop-now 15");
        leaver.signal(Signal::INT);
        leaver.must_end_with(130);
    });
}

#[test]
fn ten_signals_in_a_row_end_it_with_the_status_of_the_third() {
    many_times(|| {
        let mut leaver = LeaverProcess::installed();
        for _ in 0..10 {
            leaver.signal(Signal::TERM);
        }
        // The kernel merges pending signals. If fewer than three were left, more are needed.
        while leaver.0.process().is_alive() {
            leaver.signal(Signal::TERM);
        }
        let ended = leaver.wait();
        assert_eq!((ended.code(), ended.signal()), (Some(143), None));
    });
}

#[test]
fn all_three_stages_work_while_the_only_runtime_thread_is_busy() {
    many_times(|| {
        let mut leaver = with_callbacks();
        leaver.must_answer("block-the-runtime", "blocked");
        leaver.signal(Signal::TERM);
        leaver.must_say(ON_DRAIN);
        leaver.signal(Signal::INT);
        leaver.must_say(ON_STOP);
        leaver.signal(Signal::TERM);
        leaver.must_end_with(143);
    });
}

#[test]
fn all_three_stages_work_while_a_callback_hangs() {
    many_times(|| {
        let mut leaver = LeaverProcess::installed();
        leaver.obey(&["register-hanging hang", "register never", "register-now stop", "await stop-now"]);
        leaver.signal(Signal::TERM);
        leaver.must_say("called hang on snakepit-drain");
        leaver.signal(Signal::TERM);
        let mut said = [leaver.hear(), leaver.hear()];
        said.sort();
        assert_eq!(said, [ON_STOP, "reached stop-now 15"]);
        leaver.signal(Signal::TERM);
        leaver.must_end_with(143);
        leaver.must_say_nothing_more();
    });
}

#[test]
fn the_third_signal_ends_a_process_that_hangs_with_unread_output() {
    many_times(|| {
        let mut leaver = with_callbacks();
        leaver.signal(Signal::TERM);
        leaver.must_say(ON_DRAIN);
        leaver.signal(Signal::TERM);
        leaver.must_say(ON_STOP);
        leaver.obey(&["hook hang hangs"]);
        leaver.0.say("exit 5");
        leaver.must_say("hook hang");
        leaver.signal(Signal::INT);
        leaver.must_end_with(130);
        leaver.must_say_nothing_more();
    });
}

#[test]
fn a_manual_trigger_counts_as_a_first_signal_without_a_number() {
    many_times(|| {
        let mut leaver = with_callbacks();
        leaver.0.say("trigger");
        let mut said = [leaver.hear(), leaver.hear()];
        said.sort();
        assert_eq!(said, [ON_DRAIN, "triggered"]);
        leaver.must_answer("stage", "draining");
        // Once is enough, and a trigger never counts as a second signal.
        leaver.must_answer("trigger", "triggered");
        leaver.must_answer("stage", "draining");
        leaver.signal(Signal::INT);
        leaver.must_say(ON_STOP);
        leaver.must_answer("stage", "stop-now 2");
        leaver.must_answer("trigger", "triggered");
        leaver.must_answer("stage", "stop-now 2");
        leaver.signal(Signal::INT);
        leaver.must_end_with(130);
    });
}
