//! Everybody below the caller: stopped first, so that nobody can fork, and killed then.
//!
//! A fork bomb at the limit of processes makes a new one for each that is killed. Whoever is stopped makes none, and still
//! counts against the limit. A list of processes is always stale; so each one is held by a pidfd before it is compared,
//! compared before it is signalled, and the caller repeats all of it until the kernel says that no child is left.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::children::Signalled;
use crate::sys;

/// How long the stopping may take; whoever is known by then is killed, and the caller begins anew.
const STOP_PATIENCE: Duration = Duration::from_secs(1);
/// How long those who were just stopped get until they are looked at again, in milliseconds.
const BETWEEN_PASSES_MS: i32 = 1;

/// Stops everybody below the caller, except those who are spared and their descendants, and kills them.
pub(crate) fn stop_and_kill(spared: impl Fn(i32) -> bool) -> Signalled {
    let deadline = Instant::now() + STOP_PATIENCE;
    let mut found = Found::default();
    if is_own_proc() {
        while found.pass(&spared) == Pass::Unsettled && Instant::now() < deadline {
            let _ = sys::poll_any(&mut [], BETWEEN_PASSES_MS);
        }
    }
    found.kill()
}

/// Whether the numbers in `/proc` are those of the caller's PID namespace.
fn is_own_proc() -> bool {
    std::fs::read_link("/proc/self").is_ok_and(|own| own == Path::new(&sys::pid().to_string()))
}

/// Whether somebody was found who was new or ran.
#[derive(PartialEq, Clone, Copy)]
enum Pass {
    Settled,
    Unsettled,
    /// No more descriptors: kill those who are known, and begin anew.
    Full,
}

/// Those below the caller who are known, each held by its pidfd.
#[derive(Default)]
struct Found {
    held: BTreeMap<i32, OwnedFd>,
    /// Parents before their children.
    order: Vec<i32>,
}

impl Found {
    /// Goes through the tree once, and stops whoever runs.
    fn pass(&mut self, spared: impl Fn(i32) -> bool) -> Pass {
        let own = sys::pid();
        let mut pass = Pass::Settled;
        let mut seen = BTreeSet::new();
        let mut next: Vec<i32> = children_of_caller().into_iter().filter(|pid| !spared(*pid)).collect();
        while let Some(pid) = next.pop() {
            if pid == own || !seen.insert(pid) {
                continue;
            }
            if !self.is_held(pid) {
                match self.hold(pid, own) {
                    Held::Yes => pass = pass.and(Pass::Unsettled),
                    Held::NotOurs => continue,
                    Held::Full => {
                        pass = Pass::Full;
                        continue;
                    }
                }
            }
            if self.stop(pid) {
                pass = pass.and(Pass::Unsettled);
            }
            next.extend(children_of(pid));
        }
        pass
    }

    fn is_held(&self, pid: i32) -> bool {
        self.held.get(&pid).is_some_and(|pidfd| !sys::has_ended(pidfd.as_raw_fd()))
    }

    /// Takes hold of a process if its parent is the caller, or one who is held. The order matters: a pidfd, then
    /// the parent's number, then whether both are still alive. So neither number can have become another's.
    fn hold(&mut self, pid: i32, own: i32) -> Held {
        let pidfd = match sys::pidfd_open(pid) {
            Ok(pidfd) => pidfd,
            Err(error) if matches!(sys::errno(&error), sys::EMFILE | sys::ENFILE) => return Held::Full,
            Err(_) => return Held::NotOurs,
        };
        let Some(stat) = Stat::read(pid) else { return Held::NotOurs };
        let ours = stat.parent == own || self.is_held(stat.parent);
        if !ours || sys::has_ended(pidfd.as_raw_fd()) {
            return Held::NotOurs;
        }
        self.order.push(pid);
        self.held.insert(pid, pidfd);
        Held::Yes
    }

    /// Stops a process that runs; false if it need not or may not be. One in uninterruptible sleep counts as stopped: it
    /// may wait for a child that is, and takes the signal before it runs on.
    fn stop(&self, pid: i32) -> bool {
        let Some(state) = Stat::read(pid).map(|stat| stat.state) else { return false };
        let Some(pidfd) = self.held.get(&pid).map(AsRawFd::as_raw_fd) else { return false };
        let stopped = matches!(state, b'T' | b't');
        let sent = !stopped && sys::pidfd_signal(pidfd, sys::SIGSTOP).is_ok();
        // A leader that has ended hides how its other threads do.
        sent && !matches!(state, b'D' | b'Z' | b'X')
    }

    /// Children before their parents: when a parent ends, the kernel continues a stopped group that it leaves.
    fn kill(self) -> Signalled {
        let mut signalled = Signalled::default();
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

enum Held {
    Yes,
    NotOurs,
    Full,
}

impl Pass {
    fn and(self, other: Self) -> Self {
        if self == Self::Full { self } else { other }
    }
}

/// What is needed of `/proc/PID/stat`.
struct Stat {
    state: u8,
    parent: i32,
    group: i32,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name may contain anything, so count from its end.
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 2;
        let rest = String::from_utf8_lossy(stat.get(after_name..)?).into_owned();
        let mut fields = rest.split_ascii_whitespace();
        Some(Self {
            state: *fields.next()?.as_bytes().first()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    }
}

/// Whether a process has ended and waits to be reaped.
pub(crate) fn is_dead(pid: i32) -> bool {
    matches!(state_of(pid), Some(b'Z' | b'X'))
}

/// Whether a process is alive and of this group.
pub(crate) fn lives_in(pid: i32, group: i32) -> bool {
    Stat::read(pid).is_some_and(|stat| stat.group == group && !matches!(stat.state, b'Z' | b'X'))
}

/// The kernel's letter for the state of a process.
pub(crate) fn state_of(pid: i32) -> Option<u8> {
    Stat::read(pid).map(|stat| stat.state)
}

/// The children of the caller, which has one thread, as `/proc` has them.
pub(crate) fn children_of_caller() -> Vec<i32> {
    match std::fs::read_to_string("/proc/thread-self/children") {
        Ok(text) => parse(&text),
        Err(_) => by_scan(sys::pid()),
    }
}

/// The children of all threads of a process.
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

/// For kernels without the `children` file: everybody whose parent it is.
fn by_scan(parent: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| Stat::read(*pid).is_some_and(|stat| stat.parent == parent)).collect()
}
