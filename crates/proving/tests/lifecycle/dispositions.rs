//! The process's signal dispositions before, during and after they are recorded, and those of its forks.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use snakepit_proving::ObservedProcess;

use super::{LeaverProcess, many_times};

#[test]
fn a_reset_restores_the_previous_dispositions() {
    many_times(|| {
        let mut leaver = LeaverProcess::start();
        leaver.obey(&["handle 15", "ignore 2"]);
        leaver.must_answer("disposition 15", "foreign nodefer masked");
        leaver.must_answer("disposition 2", "ignored restart");
        leaver.must_answer("disposition 1", "default");
        leaver.must_answer("install 15 2 1", "new ignored=[]");
        for signal in [15, 2, 1] {
            leaver.must_answer(&format!("disposition {signal}"), "noted restart");
        }
        leaver.obey(&["reset"]);
        leaver.must_answer("disposition 15", "foreign nodefer masked");
        leaver.must_answer("disposition 2", "ignored restart");
        leaver.must_answer("disposition 1", "default");
        leaver.obey(&["raise 15"]);
        leaver.must_answer("heard", "15");
        leaver.signal(Signal::HUP);
        assert_eq!(leaver.wait().signal(), Some(1));
    });
}

#[test]
fn a_handler_that_the_host_installed_later_is_not_replaced() {
    let mut leaver = LeaverProcess::installed();
    leaver.obey(&["handle 15", "reset"]);
    leaver.must_answer("disposition 15", "foreign nodefer masked");
    leaver.must_answer("disposition 2", "default");
}

#[test]
fn signals_taken_later_are_also_restored_by_a_reset() {
    many_times(|| {
        let mut leaver = LeaverProcess::installed();
        leaver.must_answer("disposition 1", "default");
        leaver.must_answer("install 1", "same ignored=[]");
        leaver.obey(&["register a"]);
        leaver.signal(Signal::HUP);
        leaver.must_say("called a on snakepit-drain");
        leaver.must_answer("stage", "draining 1");
        leaver.obey(&["reset"]);
        leaver.must_answer("disposition 1", "default");
        leaver.must_answer("disposition 15", "default");
    });
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored_and_is_listed() {
    many_times(|| {
        let mut leaver = LeaverProcess::started_ignoring("INT");
        leaver.must_answer("install", "new ignored=[2]");
        leaver.must_answer("disposition 2", "ignored");
        for _ in 0..3 {
            leaver.signal(Signal::INT);
        }
        leaver.must_answer("stage", "running");
        leaver.obey(&["register a"]);
        leaver.signal(Signal::TERM);
        leaver.must_say("called a on snakepit-drain");
        leaver.must_answer("stage", "draining 15");
        leaver.obey(&["reset"]);
        leaver.must_answer("disposition 2", "ignored");
    });
}

#[test]
fn a_forked_copy_dies_by_the_signal_and_the_original_does_not_notice() {
    many_times(|| {
        let mut leaver = LeaverProcess::installed();
        leaver.obey(&["register a"]);
        let copy = ObservedProcess::of(leaver.ask("fork").parse().expect("a pid"));
        copy.signal(Signal::TERM);
        leaver.must_answer("wait-for-the-copy", "signal 15");
        leaver.must_answer("stage", "running");
        leaver.must_answer("disposition 15", "noted restart");
        leaver.signal(Signal::TERM);
        leaver.must_say("called a on snakepit-drain");
    });
}

#[test]
fn a_full_pipe_of_notes_blocks_no_handler_and_errno_is_kept() {
    let mut leaver = LeaverProcess::start();
    leaver.obey(&["take 10"]);
    leaver.must_answer("flood 10 10000", "changed 0");
    for _ in 0..100 {
        leaver.must_answer("next", "10");
    }
}

#[test]
fn notes_of_an_earlier_owner_of_the_signals_are_not_read() {
    let mut leaver = LeaverProcess::start();
    leaver.obey(&["take 10", "raise 10", "raise 10", "give-back", "take 12", "raise 12"]);
    leaver.must_answer("next", "12");
    leaver.must_answer(
        "take 10",
        "another SignalNotes already holds the signals of this process: give it back first",
    );
    leaver.obey(&["raise 12"]);
    leaver.must_answer("next", "12");
    leaver.obey(&["give-back"]);
    leaver.must_answer("install", "new ignored=[]");
}

#[test]
fn ten_signals_are_ten_notes() {
    many_times(|| {
        let mut leaver = LeaverProcess::start();
        leaver.obey(&["take 10 12"]);
        for _ in 0..5 {
            leaver.obey(&["raise 10", "raise 12"]);
        }
        for _ in 0..5 {
            leaver.must_answer("next", "10");
            leaver.must_answer("next", "12");
        }
    });
}
