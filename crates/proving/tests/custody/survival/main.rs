//! What the lifecycle survives: signals in every step, wrappers, forks, deaths, and engines that end while others
//! begin.
//!
//! This file has the host that embeds the engine, and the assertion that nothing is left once the host has ended.

mod deaths;
mod engines;
mod forks;
mod logs;
mod scripts;
mod steps;
mod stop_times;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use snakepit_proving::deadline::recheck;
use snakepit_proving::{Deadline, HostProcess, OpenAs, census, random};
use tempfile::TempDir;

/// A running program `proving-embedder`.
struct EmbedderProcess {
    host: HostProcess,
    home: TempDir,
    lines: Vec<String>,
}

/// How the process ended.
struct ProcessEnd {
    /// The exit status, or `None` if a signal killed the process.
    status: Option<i32>,
    /// The signal that killed the process.
    signal: Option<i32>,
    lines: Vec<String>,
    /// The time from the moment when the test began to wait for the end.
    took: Duration,
}

impl EmbedderProcess {
    fn start(words: &[&str]) -> Self {
        Self::start_with(words, &[])
    }

    fn start_with(words: &[&str], environment: &[(&str, &str)]) -> Self {
        let home = tempfile::Builder::new().prefix(&random::word()).tempdir().expect("a directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_proving-embedder"));
        for variable in ["SNAKEPIT_SCRIPT_EXIT", "SNAKEPIT_SCRIPT_HALT", "SNAKEPIT_NO_HALT"] {
            command.env_remove(variable);
        }
        command.args(words).env("SNAKEPIT_STATE_DIR", home.path().join("state"));
        command.envs(environment.iter().copied());
        Self { host: HostProcess::start(command, &OpenAs::default()), home, lines: Vec::new() }
    }

    /// Reads until a line begins with this text.
    fn until(&mut self, start: &str) -> String {
        loop {
            let line = self.host.hear();
            let line = line.unwrap_or_else(|| panic!("it ended before {start:?}: {:#?}", self.lines));
            self.lines.push(line.trim_end().to_owned());
            if line.starts_with(start) {
                return line.trim_end().to_owned();
            }
        }
    }

    /// Reads until this event.
    fn until_event(&mut self, name: &str) {
        self.until(&format!("{{\"event\":\"snakepit.script.{name}\""));
    }

    fn signal(&self, signal: Signal) {
        self.host.process().signal(signal);
    }

    /// Waits for the end of the process and proves that nothing is left: none of its processes, and no run.
    fn end(mut self) -> ProcessEnd {
        use std::os::unix::process::ExitStatusExt;
        let began = Instant::now();
        while let Some(line) = self.host.hear() {
            self.lines.push(line.trim_end().to_owned());
        }
        let ended = self.host.wait();
        let took = began.elapsed();
        self.must_be_gone();
        ProcessEnd { status: ended.code(), signal: ended.signal(), lines: self.lines, took }
    }

    /// Waits until nothing is left. A killed process leaves the rest to the keeper, which needs a moment.
    fn must_be_gone(&self) {
        let words = [self.home.path().to_string_lossy().into_owned()];
        recheck(Deadline::patient(), "the end of everything that it started", || {
            let left = census::mentioning(&words);
            left.is_empty().then_some(()).or_else(|| {
                assert!(left.len() < 100, "{left:?}");
                None
            })
        });
        recheck(Deadline::patient(), "the removal of its run", || self.runs().is_empty().then_some(()));
    }

    fn runs(&self) -> Vec<PathBuf> {
        let Ok(runs) = std::fs::read_dir(self.home.path().join("state/runs")) else { return Vec::new() };
        let paths = runs.filter_map(|run| run.ok().map(|run| run.path()));
        paths
            .filter(|path| !path.file_name().is_some_and(|it| it.to_string_lossy().starts_with('.')))
            .collect()
    }
}

impl ProcessEnd {
    fn events(&self) -> Vec<Value> {
        let lines = self.lines.iter().filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Returns the lines that are not events.
    fn said(&self) -> Vec<&str> {
        self.lines.iter().map(String::as_str).filter(|line| !line.starts_with('{')).collect()
    }

    fn has_said(&self, line: &str) -> bool {
        self.lines.iter().any(|said| said == line)
    }

    /// Returns how often an event came.
    fn count(&self, event: &str) -> usize {
        self.events().iter().filter(|it| it["event"] == event).count()
    }

    /// Returns a field of the last event of the shutdown with this name.
    fn field(&self, step: &str, field: &str) -> Value {
        let name = format!("snakepit.script.shutdown.{step}");
        let events = self.events();
        let found = events.iter().rev().find(|it| it["event"] == name.as_str());
        found.unwrap_or_else(|| panic!("no {name} in {:#?}", self.lines))[field].clone()
    }

    /// Returns the steps of the shutdown.
    fn steps(&self) -> Vec<String> {
        let events = self.events();
        let names = events.iter().filter_map(|event| event["event"].as_str());
        names.filter_map(|name| name.strip_prefix("snakepit.script.shutdown.")).map(str::to_owned).collect()
    }
}

const ALL_STEPS: [&str; 4] = ["start", "stop", "cleanup", "exit"];
