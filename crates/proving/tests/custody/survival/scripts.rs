//! Concurrent scripts, hooks, and workers that resist their end.

use std::time::Duration;

use rustix::process::Signal;
use snakepit_proving::cgroup::TestCgroup;
use snakepit_proving::deadline::recheck;
use snakepit_proving::{Deadline, rounds};

use super::{ALL_STEPS, EmbedderProcess};

#[test]
fn a_script_that_begins_while_another_ends_answers_signals() {
    for _ in 0..rounds(5, 2) {
        let mut embedder = EmbedderProcess::start(&["scripts", "how=overlap"]);
        embedder.until("ready");
        embedder.signal(Signal::TERM);
        let ended = embedder.end();
        assert_eq!((ended.status, ended.signal), (Some(0), None), "{:#?}", ended.lines);
        assert_eq!(ended.field("start", "path"), "signal");
    }
}

#[test]
fn of_two_scripts_that_begin_at_once_the_one_that_owns_the_engine_answers_signals() {
    for _ in 0..rounds(3, 1) {
        let mut embedder = EmbedderProcess::start(&["scripts", "how=together"]);
        embedder.until("ready");
        embedder.signal(Signal::TERM);
        embedder.until("answered");
        // The second script would wait forever. Only the second signal ends the process.
        embedder.signal(Signal::TERM);
        embedder.host.kill();
        assert!(embedder.end().has_said("answered"));
    }
}

#[test]
fn the_hooks_of_the_host_run_in_mode_stop_alone() {
    let hook = |exit: &str| {
        let ended = EmbedderProcess::start(&["script", "hook", &format!("exit={exit}")]).end();
        assert_eq!(ended.status, Some(0));
        ended.has_said("hook")
    };
    assert_eq!([hook("stop"), hook("halt"), hook("none")], [true, false, false]);
}

#[test]
fn a_hook_that_hangs_is_bounded_and_the_status_stays() {
    let words = ["script", "hook=hangs", "exit=stop", "function=fails", "exit-limit=300"];
    let ended = EmbedderProcess::start(&words).end();
    assert_eq!(ended.status, Some(1));
    assert!(ended.has_said("hook"));
}

#[test]
fn a_script_with_pools_of_its_own_ends_only_these() {
    let ended = EmbedderProcess::start(&["own-pools"]).end();
    let expected = ["runs 2", "returned", "runs 1", "the host's engine serves", "runs 0"];
    assert_eq!(ended.said(), expected, "{:#?}", ended.lines);
}

#[test]
fn a_script_with_pools_of_its_own_and_stop_mode_always_stops_both() {
    let ended = EmbedderProcess::start(&["own-pools", "always"]).end();
    let expected = ["runs 2", "returned", "runs 0", "the host's engine is stopped", "runs 0"];
    assert_eq!(ended.said(), expected, "{:#?}", ended.lines);
}

#[test]
fn a_worker_that_ignores_term_is_killed_with_a_warning_and_the_status_stays() {
    for (function, status) in [("function=", 0), ("function=fails", 1)] {
        let words = ["script", "worker=deaf", function, "exit=stop", "log=tells", "term=300"];
        let ended = EmbedderProcess::start(&words).end();
        assert_eq!(ended.status, Some(status), "{:#?}", ended.lines);
        assert_eq!(ended.steps(), ALL_STEPS);
        assert_eq!(ended.field("cleanup", "outcome"), "clean");
        let warned = ended.said().iter().any(|line| line.starts_with("log") && line.contains("killed=1"));
        assert!(warned, "there was no warning: {:#?}", ended.lines);
    }
}

#[test]
fn a_script_whose_future_is_dropped_ends() {
    for runtime in ["runtime=multi", "runtime=current"] {
        let ended = EmbedderProcess::start(&["scripts", "how=deserted", runtime]).end();
        let said = ended.said();
        assert_eq!(said[1..], ["deserted", "runs 1", "returned"], "{:#?}", ended.lines);
        let owned: Vec<_> = ended.events().iter().map(|event| event["owned"].clone()).collect();
        assert!(!owned.contains(&false.into()), "the second was embedded: {:#?}", ended.lines);
    }
}

/// In a frozen cgroup, KILL reaches no process, as in uninterruptible sleep.
#[test]
fn an_unkillable_worker_does_not_keep_the_process_from_exiting() {
    let Some(freezer) = TestCgroup::below_ours("freezer") else {
        return snakepit_proving::unproven("no freezer cgroup of version 1");
    };
    let words = ["script", "function=waits", "exit=stop", "grace=100", "cleanup=500", "term=100"];
    let mut embedder = EmbedderProcess::start(&words);
    let worker = embedder.until("worker ");
    let pid: i32 = worker.trim_start_matches("worker ").parse().expect("a pid");
    freezer.take(pid);
    freezer.write("freezer.state", "FROZEN");
    recheck(Deadline::patient(), "the freeze", || {
        (freezer.read("freezer.state").trim() == "FROZEN").then_some(())
    });
    embedder.host.say("go on");
    embedder.until_event("shutdown.exit");
    embedder.host.process().must_end("the host");
    freezer.write("freezer.state", "THAWED");
    let ended = embedder.end();
    assert_eq!(ended.status, Some(0));
    assert_eq!(ended.field("cleanup", "outcome"), "timeout", "{:#?}", ended.lines);
    let cleanup = ended.field("cleanup", "took").as_f64().expect("seconds");
    assert!(cleanup < Duration::from_secs(5).as_secs_f64(), "{cleanup}");
}

#[test]
fn endless_timeouts_do_not_overflow() {
    let ended = EmbedderProcess::start(&["script", "endless"]).end();
    assert_eq!(ended.status, Some(0), "{:#?}", ended.lines);
    assert_eq!(ended.steps(), ALL_STEPS);
}

#[test]
fn a_script_whose_function_stops_or_cleans_up_the_engine_ends_normally() {
    let ended = EmbedderProcess::start(&["script", "function=stops", "exit=stop"]).end();
    assert!(ended.has_said("refused"), "{:#?}", ended.lines);
    assert_eq!(ended.status, Some(0));
    // One for the worker, unless it has already ended, and one for the run.
    assert!(ended.count("snakepit.cleanup.start") <= 2, "one shutdown's worth of work: {:#?}", ended.lines);
    for runtime in ["runtime=multi", "runtime=current"] {
        let ended = EmbedderProcess::start(&["script", "function=cleans-up", "exit=stop", runtime]).end();
        assert!(ended.has_said("ended 1"), "{:#?}", ended.lines);
        assert_eq!(ended.status, Some(0));
    }
}
