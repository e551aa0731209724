//! The death of a killed host ends everything that it started, or the next cleanup ends the rest.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::event::PollFd;
use rustix::process::Signal;
use snakepit_proving::deadline::{READABLE, recheck};
use snakepit_proving::{CensusEntry, Deadline, ObservedProcess, census};

use super::{ConfinedHome, built, each_profile, finish};

each_profile!(nothing_survives_a_kill_of_the_host, what_nobody_is_left_to_end_is_ended_by_the_next_cleanup);

/// A command that ignores what can be ignored, with a child in its group.
const WITH_A_CHILD: &str = "trap '' HUP INT TERM; sleep 1000 & echo ready; wait";
/// The same with another child that has left the group and the session, which the tier `group` does not hold.
const WITH_A_LEAVER: &str = "trap '' HUP INT TERM; sleep 1000 & setsid sleep 1000 & echo ready; wait";

fn nothing_survives_a_kill_of_the_host(home: &ConfinedHome) {
    for tier in home.tiers() {
        let script = if tier == "group" { WITH_A_CHILD } else { WITH_A_LEAVER };
        let mut running = RunningHost::start(home, tier, script);
        running.kill();
        running.must_be_over();
        if tier == "namespace" {
            // In this tier the keeper dies with its host, and the record waits for the next start or cleanup.
            clean_up(home);
        }
        home.nothing_is_recorded();
    }
}

/// Kills host, keeper and shims almost simultaneously, so that only the records are left.
fn what_nobody_is_left_to_end_is_ended_by_the_next_cleanup(home: &ConfinedHome) {
    for tier in home.tiers().into_iter().filter(|tier| matches!(*tier, "auto" | "shim")) {
        let mut running = RunningHost::start(home, tier, WITH_A_LEAVER);
        running.kill_all_of_custody();
        let run = clean_up(home);
        assert!(run["killed"].as_array().is_some_and(|killed| !killed.is_empty()), "{run:#}");
        running.must_be_over();
        home.nothing_is_recorded();
    }
}

/// Returns the report of a cleanup about the one dead run. It may be unclean only because a process could not be read:
/// unlike in a container, there are foreign processes here that a root with few capabilities cannot judge. A cleanup
/// with more privileges finds no process.
fn clean_up(home: &ConfinedHome) -> serde_json::Value {
    // A killed keeper holds the run's lock until the kernel has dismantled the keeper. Until then, the run is live.
    let (output, report) = recheck(Deadline::patient(), "a dead run", || {
        let output = finish(&mut home.snakepit(&["cleanup", "--json"]));
        let report: serde_json::Value =
            serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        report["runs"].get(0).is_some().then_some((output, report))
    });
    let run = &report["runs"][0];
    let in_doubt = run["let_be"].as_array().is_some_and(|let_be| !let_be.is_empty());
    assert_eq!(output.status, Some(i32::from(in_doubt)), "{report:#}");
    assert_eq!(run["survivors"], serde_json::json!([]), "{report:#}");
    if in_doubt {
        let mut cleanup = Command::new(built::snakepit());
        let unconfined = finish(cleanup.arg("cleanup").env("SNAKEPIT_STATE_DIR", home.state_dir()));
        assert_eq!(unconfined.status, Some(0), "{report:#}, then {unconfined:?}");
    }
    run.clone()
}

/// A running host, and a pipe that everything below it holds.
struct RunningHost {
    host: Child,
    process: ObservedProcess,
    stdout: BufReader<ChildStdout>,
}

impl RunningHost {
    fn start(home: &ConfinedHome, tier: &str, script: &str) -> Self {
        let mut exec = home.snakepit(&["exec", "--tier", tier, "--", "sh", "-c", script]);
        let mut host = exec.stdout(Stdio::piped()).spawn().expect("start snakepit");
        let process = ObservedProcess::of(host.id().cast_signed());
        let mut stdout = BufReader::new(host.stdout.take().expect("stdout"));
        let mut line = String::new();
        assert!(
            Deadline::patient().readable(&mut [PollFd::new(stdout.get_ref(), READABLE)]),
            "it says nothing"
        );
        stdout.read_line(&mut line).expect("stdout");
        assert_eq!(line, "ready\n", "{tier}");
        Self { host, process, stdout }
    }

    fn kill(&mut self) {
        self.process.end();
        self.host.wait().expect("its status");
    }

    fn kill_all_of_custody(&mut self) {
        self.process.signal(Signal::STOP);
        let below = |parent: i32| census::children(parent).into_iter().filter(CensusEntry::is_custody);
        let mut all: Vec<ObservedProcess> = below(self.process.pid()).map(|found| hold(&found)).collect();
        let mut next = 0;
        while let Some(parent) = all.get(next).map(ObservedProcess::pid) {
            all.extend(below(parent).map(|found| hold(&found)).collect::<Vec<_>>());
            next += 1;
        }
        assert!(all.len() >= 2, "a keeper and a shim");
        // The youngest process is killed first. If a keeper died before its stopped shims, the kernel would continue
        // them, and they would clean up.
        for process in all.iter().rev() {
            process.signal(Signal::KILL);
        }
        self.kill();
        for process in &all {
            process.must_end("a killed part of custody");
        }
    }

    /// Waits until no process holds the pipe.
    fn must_be_over(&mut self) {
        let mut rest = [0; 64];
        assert!(
            Deadline::patient().readable(&mut [PollFd::new(self.stdout.get_ref(), READABLE)]),
            "somebody below the killed host is still alive"
        );
        assert_eq!(self.stdout.read(&mut rest).expect("stdout"), 0, "something was still said");
    }
}

/// Stops a process and waits until it has stopped.
fn hold(found: &CensusEntry) -> ObservedProcess {
    let process = ObservedProcess::of(found.pid);
    process.signal(Signal::STOP);
    recheck(Deadline::patient(), "a stopped process", || {
        CensusEntry::read(process.pid())
            .is_none_or(|found| matches!(found.state, 'T' | 'D' | 'Z'))
            .then_some(())
    });
    process
}
