//! A host of the portable tier: this program, run again with the name of the test `a_host` and a variable that gives it
//! its role.
//!
//! About `crates/custody/src/portable/keeper_link.rs`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use snakepit_custody::{self as custody, CustodyOptions, Run};

use super::in_time;
use crate::support::{Home, shell};

/// The role of a host that is run again. The state directory is in `STATE`.
const ROLE: &str = "SNAKEPIT_TEST_ROLE";

const STATE: &str = "SNAKEPIT_TEST_STATE";

/// Not a test on its own: the host of the other tests.
#[test]
fn a_host() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let state_dir = std::env::var_os(STATE).unwrap();
    let run = Run::open(CustodyOptions::default().state_dir(state_dir)).unwrap();
    for _ in 0..3 {
        // A worker and its child hold the host's output open as long as they live. Processes that a failing test leaves
        // end on their own, and hold no descriptor of the test runner.
        let script = "sleep 60 & trap '' TERM; echo worker $$; echo child $!; wait";
        run.spawn(shell(script).stderr(custody::Stdio::Null)).unwrap();
    }
    if role == "forked" {
        // SAFETY: the copy makes only calls that are allowed after a fork.
        let copy = unsafe {
            let copy = libc::fork();
            if copy == 0 {
                libc::close(1);
                libc::close(2);
                libc::alarm(60);
                libc::pause();
                libc::_exit(0);
            }
            copy
        };
        println!("copy {copy}");
    }
    println!("keeper {}", run.keeper_pid().unwrap());
    // The input does not end before the host is killed.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A host in a separate process, with three workers that have one child each.
pub(super) struct Host {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
    pub(super) pids: Vec<(String, Pid)>,
}

impl Host {
    #[expect(clippy::disallowed_methods, reason = "a host that is to be killed")]
    pub(super) fn start(home: &Home, role: &str) -> Self {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "portable::host::a_host", "--nocapture"])
            .env(ROLE, role)
            .env(STATE, home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = process.stdout.take().unwrap();
        let (output, pids) = in_time("the workers' names", move || {
            let mut output = BufReader::new(output);
            let mut pids = Vec::new();
            while !pids.iter().any(|(name, _)| name == "keeper") || pids.len() < 7 {
                let mut line = String::new();
                assert_ne!(output.read_line(&mut line).unwrap(), 0, "{pids:?}");
                // Output of the test runner may come before the host's.
                let words: Vec<_> = line.split_whitespace().collect();
                if let [.., name @ ("worker" | "child" | "copy" | "keeper"), pid] = words[..] {
                    pids.push((name.to_owned(), Pid::from_raw(pid.parse().unwrap()).unwrap()));
                }
            }
            (output, pids)
        });
        Self { process, output, pids }
    }

    pub(super) fn pid_of(&self, who: &str) -> Pid {
        self.pids.iter().find(|(name, _)| name == who).unwrap().1
    }

    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Kills host and keeper, so that neither can end the workers. Kills the keeper while the host is stopped.
    #[expect(
        clippy::disallowed_methods,
        reason = "the host is a child of the test, and the keeper a child of the stopped host"
    )]
    pub(super) fn kill_with_keeper(&mut self) {
        let host = Pid::from_raw(self.process.id().cast_signed()).unwrap();
        kill_process(host, Signal::STOP).unwrap();
        // Before the stop, the host's threads may still see the keeper die.
        in_time("the host's stop", move || waitid(WaitId::Pid(host), WaitIdOptions::STOPPED).unwrap());
        kill_process(self.pid_of("keeper"), Signal::KILL).unwrap();
        self.kill();
    }

    /// Waits until no process holds the output any more: neither host nor workers nor their children.
    pub(super) fn wait_for_all(self) {
        let mut output = self.output;
        in_time("the end of all workers", move || output.read_to_end(&mut Vec::new()).unwrap());
    }
}
