//! Another process that uses the same file.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A `proving-mailer`, which is ended and reaped when it is dropped.
pub(super) struct MailerProcess {
    pub(super) child: Child,
    out: BufReader<ChildStdout>,
}

impl MailerProcess {
    /// Starts the program with a fault, as `SNAKEPIT_MAILBOX_FAULT` names it.
    pub(super) fn start(file: &Path, verb: &str, words: &[&str], fault: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_proving-mailer"));
        command.arg(verb).arg(file).args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(fault) = fault {
            command.env("SNAKEPIT_MAILBOX_FAULT", fault);
        }
        let mut child = command.spawn().expect("the program");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, out }
    }

    /// Returns the next line of output, or `None` if the process has ended.
    pub(super) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.out.read_line(&mut line).expect("its output");
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Returns all output until the process ends.
    pub(super) fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.line()).collect()
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until a signal has stopped the process.
    pub(super) fn stopped(&self) {
        let (_, status) =
            waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("a status").expect("it is not running");
        assert!(status.stopped(), "{status:?}");
    }

    pub(super) fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).expect("a signal");
    }
}

impl Drop for MailerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
