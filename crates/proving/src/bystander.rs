//! The innocents: they stand beside every fault, and not a hair of theirs may be touched.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{Process, random};

/// A process that has nothing to do with the run.
#[derive(Debug)]
pub struct Bystander {
    child: Child,
    process: Process,
    looks: &'static str,
}

impl Bystander {
    /// One that looks like any other process.
    pub fn plain(hostile: &Path) -> Self {
        Self::start(Command::new(hostile).arg("innocent"), "plain")
    }

    /// One that carries the marker of some other run, as another host's worker would.
    pub fn of_another_run(hostile: &Path) -> Self {
        let other = format!("{}{}", random::word(), random::word());
        let mut command = Command::new(hostile);
        command.arg("innocent").env("SNAKEPIT_RUN_ID", other).env("SNAKEPIT_WORKER_ID", "w1");
        Self::start(&mut command, "marked with another run")
    }

    /// One that carries the marker of a given run, as a job does that was started with a copied environment.
    pub fn of_this_run(hostile: &Path, run: &str) -> Self {
        let mut command = Command::new(hostile);
        command.arg("innocent").env("SNAKEPIT_RUN_ID", run).env("SNAKEPIT_WORKER_ID", "w1");
        Self::start(&mut command, "with a copied environment")
    }

    /// One of this user, with the marker of some other run.
    pub fn of_the_user(hostile: &Path, user: u32) -> Self {
        let mut command = Command::new(hostile);
        command.arg("innocent").env("SNAKEPIT_RUN_ID", random::word()).uid(user).gid(user);
        Self::start(&mut command, "of the same user")
    }

    /// What another command starts; the command itself is the bystander.
    pub fn of_a_command(command: &mut Command) -> Self {
        Self::start(command, "started by a command")
    }

    fn start(command: &mut Command, looks: &'static str) -> Self {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn().expect("start a bystander");
        let process = Process::of(child.id().cast_signed());
        Self { child, process, looks }
    }

    /// Its process, for a test of the harness itself.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Fails the test if it was touched.
    pub fn must_be_untouched(&self) {
        assert_eq!(self.harm(), None);
    }

    /// What was done to it, in words.
    pub fn harm(&self) -> Option<String> {
        if !self.process.is_alive() {
            return Some(format!("the bystander ({}) was killed", self.looks));
        }
        let stopped = crate::Found::read(self.process.pid()).is_none_or(|found| found.state == 'T');
        stopped.then(|| format!("the bystander ({}) was stopped", self.looks))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // Both may fail only because it has ended, which `must_be_untouched` reports.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
