//! How a process ends: what signals do, and the two kinds of exit, with real processes and many rounds.
//!
//! This file has the host that takes the tests' orders. `SNAKEPIT_QUICK=1` reduces the rounds.

mod callbacks;
mod dispositions;
mod exits;
mod stages;

use std::process::{Command, ExitStatus};

use rustix::process::Signal;
use snakepit_proving::{HostProcess, OpenAs};

/// A running program `proving-leaver`.
struct LeaverProcess(HostProcess);

impl LeaverProcess {
    fn start() -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_proving-leaver")))
    }

    /// Starts a host that has the coordinator.
    fn installed() -> Self {
        let mut leaver = Self::start();
        leaver.must_answer("install", "new ignored=[]");
        leaver
    }

    /// Starts a host as `nohup` does, with this signal ignored.
    fn started_ignoring(signal: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("trap '' {signal}; exec \"$0\"")]);
        shell.arg(env!("CARGO_BIN_EXE_proving-leaver"));
        Self::start_by(shell)
    }

    fn start_by(mut command: Command) -> Self {
        // Some hosts panic on request. Resolving the names of a backtrace would take longer than everything else.
        command.env("RUST_BACKTRACE", "0");
        Self(HostProcess::start(command, &OpenAs::default()))
    }

    fn ask(&mut self, order: &str) -> String {
        self.0.say(order);
        self.hear()
    }

    fn must_answer(&mut self, order: &str, answer: &str) {
        assert_eq!(self.ask(order), answer, "the answer to {order:?}");
    }

    fn obey(&mut self, orders: &[&str]) {
        for order in orders {
            self.must_answer(order, "ok");
        }
    }

    fn hear(&mut self) -> String {
        self.0.hear().expect("the host ended instead of saying something").trim_end().to_owned()
    }

    fn must_say(&mut self, line: &str) {
        assert_eq!(self.hear(), line);
    }

    fn must_say_nothing_more(&mut self) {
        assert_eq!(self.0.hear(), None);
    }

    fn signal(&self, signal: Signal) {
        self.0.process().signal(signal);
    }

    fn wait(&mut self) -> ExitStatus {
        self.0.wait()
    }

    /// Asserts that the process exits with this status.
    fn must_end_with(&mut self, status: i32) {
        let ended = self.wait();
        assert_eq!(ended.code(), Some(status), "{ended:?}");
    }
}

/// Repeats a round, because races show only in one round of many.
fn many_times(round: impl Fn()) {
    for _ in 0..snakepit_proving::rounds(100, 5) {
        round();
    }
}
