//! Bystanders: processes that live during every fault and that custody must not touch.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{ObservedProcess, random};

/// A process that has nothing to do with the run.
#[derive(Debug)]
pub struct Bystander {
    child: Child,
    process: ObservedProcess,
    looks: &'static str,
}

impl Bystander {
    /// Starts a bystander that looks like any other process.
    pub fn plain(hostile: &Path) -> Self {
        Self::start(Command::new(hostile).arg("innocent"), "plain")
    }

    /// Starts a bystander with the marker of another run, like a worker of another host.
    pub fn of_another_run(hostile: &Path) -> Self {
        let other = format!("{}{}", random::word(), random::word());
        let mut command = Command::new(hostile);
        command.arg("innocent").env("SNAKEPIT_RUN_ID", other).env("SNAKEPIT_WORKER_ID", "w1");
        Self::start(&mut command, "marked with another run")
    }

    /// Starts a bystander with the marker of a given run, like a job that was started with a copied environment.
    pub fn of_this_run(hostile: &Path, run: &str) -> Self {
        let mut command = Command::new(hostile);
        command.arg("innocent").env("SNAKEPIT_RUN_ID", run).env("SNAKEPIT_WORKER_ID", "w1");
        Self::start(&mut command, "with a copied environment")
    }

    /// Starts a bystander of this user with the marker of another run.
    pub fn of_the_user(hostile: &Path, user: u32) -> Self {
        let mut command = Command::new(hostile);
        command.arg("innocent").env("SNAKEPIT_RUN_ID", random::word()).uid(user).gid(user);
        Self::start(&mut command, "of the same user")
    }

    /// Starts a bystander with another command.
    pub fn of_a_command(command: &mut Command) -> Self {
        Self::start(command, "started by a command")
    }

    fn start(command: &mut Command, looks: &'static str) -> Self {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn().expect("start a bystander");
        let process = ObservedProcess::of(child.id().cast_signed());
        Self { child, process, looks }
    }

    /// Returns the bystander's process, for a test of the harness itself.
    pub fn process(&self) -> &ObservedProcess {
        &self.process
    }

    /// Fails the test if the bystander was touched.
    pub fn must_be_untouched(&self) {
        assert_eq!(self.harm(), None);
    }

    /// Returns what was done to the bystander, in words.
    pub fn harm(&self) -> Option<String> {
        if !self.process.is_alive() {
            return Some(format!("the bystander ({}) was killed", self.looks));
        }
        let stopped = crate::CensusEntry::read(self.process.pid()).is_none_or(|found| found.state == 'T');
        stopped.then(|| format!("the bystander ({}) was stopped", self.looks))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // Both may fail only because the bystander has ended, which `must_be_untouched` reports.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
