//! All descendants of the caller: first stopped, so that none can fork, then killed.
//!
//! A fork bomb at the process limit creates a new process for each one that is killed. A stopped process creates none,
//! and still counts against the limit. A list of processes is always stale, so the code opens a pidfd for each process
//! before it compares the process, and compares before it sends a signal. The caller repeats all of this until the
//! kernel reports that no child is left.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::identity::read_stat;
use crate::sys;

use super::children::SignalOutcome;

/// How long the stopping may take. After that, the known processes are killed, and the caller starts again.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait before the next look at stopped processes, in milliseconds.
const BETWEEN_PASSES_MS: i32 = 1;

/// Stops and kills all descendants of the caller, except the spared ones and their descendants.
pub(crate) fn stop_and_kill(spared: impl Fn(i32) -> bool) -> SignalOutcome {
    let deadline = Instant::now() + STOP_TIMEOUT;
    let mut found = HeldTree::default();
    if is_own_proc() {
        while found.pass(&spared) == StopPass::Unsettled && Instant::now() < deadline {
            let _ = sys::poll_any(&mut [], BETWEEN_PASSES_MS);
        }
    }
    found.kill()
}

/// Returns whether the numbers in `/proc` are those of the caller's PID namespace.
fn is_own_proc() -> bool {
    std::fs::read_link("/proc/self").is_ok_and(|own| own == Path::new(&sys::pid().to_string()))
}

/// The result of one pass through the tree.
#[derive(PartialEq, Clone, Copy)]
enum StopPass {
    Settled,
    Unsettled,
    /// No descriptor is free: the known processes must be killed before the next attempt.
    Full,
}

/// The known descendants of the caller, each held by its pidfd.
#[derive(Default)]
struct HeldTree {
    held: BTreeMap<i32, OwnedFd>,
    /// Parents before their children.
    order: Vec<i32>,
}

impl HeldTree {
    /// Goes through the tree once and stops every running process.
    fn pass(&mut self, spared: impl Fn(i32) -> bool) -> StopPass {
        let own = sys::pid();
        let mut pass = StopPass::Settled;
        let mut seen = BTreeSet::new();
        let mut next: Vec<i32> = children_of_caller().into_iter().filter(|pid| !spared(*pid)).collect();
        while let Some(pid) = next.pop() {
            if pid == own || !seen.insert(pid) {
                continue;
            }
            if !self.is_held(pid) {
                match self.hold(pid, own) {
                    HoldOutcome::Yes => pass = pass.and(StopPass::Unsettled),
                    HoldOutcome::NotOurs => continue,
                    HoldOutcome::Full => {
                        pass = StopPass::Full;
                        continue;
                    }
                }
            }
            if self.stop(pid) {
                pass = pass.and(StopPass::Unsettled);
            }
            next.extend(children_of(pid));
        }
        pass
    }

    fn is_held(&self, pid: i32) -> bool {
        self.held.get(&pid).is_some_and(|pidfd| !sys::has_ended(pidfd.as_raw_fd()))
    }

    /// Opens a pidfd for a process if its parent is the caller or a held process. The order matters: open the pidfd,
    /// read the parent's pid, then check that both processes are alive. So neither number can mean another process.
    fn hold(&mut self, pid: i32, own: i32) -> HoldOutcome {
        let pidfd = match sys::pidfd_open(pid) {
            Ok(pidfd) => pidfd,
            Err(error) if matches!(sys::errno(&error), sys::EMFILE | sys::ENFILE) => {
                return HoldOutcome::Full;
            }
            Err(_) => return HoldOutcome::NotOurs,
        };
        let Some(stat) = read_stat(pid) else { return HoldOutcome::NotOurs };
        let ours = stat.parent == own || self.is_held(stat.parent);
        if !ours || sys::has_ended(pidfd.as_raw_fd()) {
            return HoldOutcome::NotOurs;
        }
        self.order.push(pid);
        self.held.insert(pid, pidfd);
        HoldOutcome::Yes
    }

    /// Stops a running process. Returns false if the process need not or may not be stopped. Uninterruptible sleep
    /// counts as stopped: the process may wait for a stopped child, and receives the signal before it continues.
    fn stop(&self, pid: i32) -> bool {
        let Some(state) = read_stat(pid).map(|stat| stat.state) else { return false };
        let Some(pidfd) = self.held.get(&pid).map(AsRawFd::as_raw_fd) else { return false };
        let stopped = matches!(state, 'T' | 't');
        let sent = !stopped && sys::pidfd_signal(pidfd, sys::SIGSTOP).is_ok();
        // A leader that has ended hides the state of its other threads.
        sent && !matches!(state, 'D' | 'Z' | 'X')
    }

    /// Kills children before their parents. When a parent ends, the kernel continues the stopped group that the parent
    /// leaves.
    fn kill(self) -> SignalOutcome {
        let mut signalled = SignalOutcome::default();
        for pid in self.order.iter().rev() {
            if let Some(pidfd) = self.held.get(pid)
                && !sys::has_ended(pidfd.as_raw_fd())
            {
                signalled.note(*pid, sys::pidfd_signal(pidfd.as_raw_fd(), sys::SIGKILL));
            }
        }
        signalled
    }
}

enum HoldOutcome {
    Yes,
    NotOurs,
    Full,
}

impl StopPass {
    fn and(self, other: Self) -> Self {
        if self == Self::Full { self } else { other }
    }
}

/// Returns whether a process has ended and waits to be reaped.
pub(crate) fn is_dead(pid: i32) -> bool {
    read_stat(pid).is_some_and(|stat| stat.has_ended())
}

/// Returns whether a process is alive and in this group.
pub(crate) fn lives_in(pid: i32, group: i32) -> bool {
    read_stat(pid).is_some_and(|stat| stat.group == group && !stat.has_ended())
}

/// Returns the kernel's letter for the state of a process.
pub(crate) fn state_of(pid: i32) -> Option<char> {
    read_stat(pid).map(|stat| stat.state)
}

/// Returns the children of the caller, as `/proc` lists them. The caller has one thread.
pub(crate) fn children_of_caller() -> Vec<i32> {
    match std::fs::read_to_string("/proc/thread-self/children") {
        Ok(text) => parse(&text),
        Err(_) => by_scan(sys::pid()),
    }
}

/// Returns the children of all threads of a process.
fn children_of(pid: i32) -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut children = Vec::new();
    for thread in threads.flatten() {
        match std::fs::read_to_string(thread.path().join("children")) {
            Ok(text) => children.extend(parse(&text)),
            Err(_) if thread.path().exists() => return by_scan(pid),
            Err(_) => {}
        }
    }
    children
}

fn parse(text: &str) -> Vec<i32> {
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns the children of a process, on kernels without the `children` file.
fn by_scan(parent: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| read_stat(*pid).is_some_and(|stat| stat.parent == parent)).collect()
}
