//! Orders about runs: what is left of them after each kind of exit.

use std::time::Duration;

use snakepit::custody::{Command, CustodyOptions, Run, end_all};

use crate::{number, tell};

#[derive(Default)]
pub(crate) struct LeaverRuns {
    runs: Vec<Run>,
}

impl LeaverRuns {
    pub(crate) fn obey(&mut self, words: &[&str]) -> bool {
        match words {
            ["run", state] => {
                let config = CustodyOptions::default().state_dir(*state);
                let run = Run::open(config).expect("open a run");
                let worker = run.spawn(Command::new("sleep").arg("1000")).expect("spawn");
                self.runs.push(run);
                tell(&worker.pid().to_string());
            }
            ["end-all", millis] => {
                tell(&format!("ended {}", end_all(Duration::from_millis(number(millis) as u64)).len()));
            }
            ["end-all-in-a-copy"] => end_all_in_a_copy(),
            _ => return false,
        }
        true
    }
}

/// Forks a copy of the host that ends what it believes to be its own.
fn end_all_in_a_copy() {
    // SAFETY: a copy may find a lock that is held forever. No other thread of this host holds one of our locks now, and
    // the test's own deadline bounds the wait.
    let copy = unsafe { libc::fork() };
    if copy == 0 {
        let ended = end_all(Duration::ZERO).len();
        snakepit::lifecycle::exit_now(ended as i32);
    }
    let mut status = 0;
    // SAFETY: it is our own child, and only this call waits for it.
    unsafe { libc::waitpid(copy, &raw mut status, 0) };
    tell(&format!("ended {}", libc::WEXITSTATUS(status)));
}
