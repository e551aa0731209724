//! The children of the caller, and their end.
//!
//! The pid of a child that is not reaped still belongs to that child, so a plain signal cannot reach a foreign process.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::descendants;
use crate::sys::{self, PollFd};

/// Returns the pids of the caller's children, in no order. The list may miss a child that started or ended meanwhile,
/// so callers repeat the call until the kernel reports that no child is left.
///
/// The kernel confirms each pid, because the same numbers mean other processes in a `/proc` of another PID namespace.
pub(crate) fn list() -> Vec<i32> {
    let listed = descendants::children_of_caller();
    listed.into_iter().filter(|pid| sys::is_child(*pid)).collect()
}

/// Sends KILL to the caller's children, except those that are spared.
pub(crate) fn kill(spared: impl Fn(i32) -> bool) -> SignalOutcome {
    let mut signalled = SignalOutcome::default();
    for pid in list().into_iter().filter(|pid| !spared(*pid)) {
        signalled.note(pid, sys::send_signal(pid, sys::SIGKILL));
    }
    signalled
}

/// The processes that a round of signals reached.
#[derive(Default)]
pub(crate) struct SignalOutcome {
    /// The processes that got the signal.
    pub(crate) reached: Vec<i32>,
    /// The processes that belong to another user by now, because they ran a setuid program.
    pub(crate) refused: Vec<i32>,
}

impl SignalOutcome {
    pub(crate) fn note(&mut self, pid: i32, sent: std::io::Result<()>) {
        match sent {
            Ok(()) => self.reached.push(pid),
            Err(error) if sys::errno(&error) == sys::EPERM => self.refused.push(pid),
            // The process is gone.
            Err(_) => {}
        }
    }
}

/// Rounds of KILL that become more thorough. Most trees of processes are gone after a few cheap rounds.
pub(crate) struct Escalation {
    began: Instant,
    rounds: u32,
    /// When the situation began in which only processes are left that may not be signalled or cannot be reaped.
    alone_since: Option<Instant>,
}

/// After this many rounds and this much time, killing processes one by one will not succeed.
const CHEAP_ROUNDS: u32 = 8;
const CHEAP_TIME: Duration = Duration::from_millis(50);

/// How long processes that may not be signalled get to end on their own. Most setuid programs end soon.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(1);
/// How long ended processes get to become reapable. A tracer may delay this.
const DEAD_TIMEOUT: Duration = Duration::from_millis(200);

impl Escalation {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), rounds: 0, alone_since: None }
    }

    /// Sends one round of KILL to all processes except the spared ones and their descendants.
    pub(crate) fn kill(&mut self, spared: impl Fn(i32) -> bool) -> KillRound {
        self.rounds += 1;
        let thorough = self.rounds > CHEAP_ROUNDS && self.began.elapsed() > CHEAP_TIME;
        let mut signalled = if thorough { SignalOutcome::default() } else { kill(&spared) };
        // Descendants of a process that may not be signalled may accept signals themselves.
        if thorough || (signalled.reached.is_empty() && !signalled.refused.is_empty()) {
            signalled = descendants::stop_and_kill(spared);
        }
        self.round(signalled)
    }

    /// Sends one round of KILL to a group whose orphans become the caller's children.
    pub(crate) fn kill_group(&mut self, group: i32) -> KillRound {
        // The kernel refuses only if no member may be signalled.
        let refused =
            matches!(sys::send_signal(-group, sys::SIGKILL), Err(error) if sys::errno(&error) == sys::EPERM);
        let alive = list().into_iter().filter(|pid| descendants::lives_in(*pid, group)).collect();
        let mut signalled = SignalOutcome::default();
        *if refused { &mut signalled.refused } else { &mut signalled.reached } = alive;
        self.round(signalled)
    }

    /// Evaluates a round. It is the last one if, for a while, only processes were left that may not be signalled or are
    /// dead.
    fn round(&mut self, signalled: SignalOutcome) -> KillRound {
        let alone = signalled.reached.is_empty() && (!signalled.refused.is_empty() || all_are_dead());
        self.alone_since = alone.then(|| self.alone_since.unwrap_or_else(Instant::now));
        let timeout = if signalled.refused.is_empty() { DEAD_TIMEOUT } else { REFUSED_TIMEOUT };
        let is_last = self.alone_since.is_some_and(|since| since.elapsed() > timeout);
        let given_up = if is_last { signalled.refused } else { Vec::new() };
        KillRound { reached: signalled.reached, given_up, is_last }
    }
}

/// Returns whether all children have ended but cannot be reaped, because a tracer holds them.
fn all_are_dead() -> bool {
    let children = list();
    !children.is_empty() && children.into_iter().all(descendants::is_dead)
}

/// The result of a round of KILL.
pub(crate) struct KillRound {
    pub(crate) reached: Vec<i32>,
    /// The processes that may not be signalled. Filled only after the last round.
    pub(crate) given_up: Vec<i32>,
    /// Whether another round would change nothing.
    pub(crate) is_last: bool,
}

/// How many children are reaped in one go. The limit lets the caller handle other events during a fork bomb.
pub(crate) const REAPED_AT_ONCE: usize = 1000;

/// How long to wait for the first death before looking for more processes, in milliseconds. Usually the processes that
/// were already killed are the only ones.
pub(crate) const FIRST_DEATH_MS: i32 = 100;
/// How long to wait for a death before the next round, in milliseconds.
pub(crate) const NEXT_DEATH_MS: i32 = 50;

/// Ends all children and everything that they leave behind.
pub(crate) struct EndOfChildren<'a> {
    /// Readable when a child has ended.
    pub(crate) deaths: &'a OwnedFd,
    /// Kills all processes at once, where that is possible. Called if the first death was not the last.
    pub(crate) kill_at_once: &'a dyn Fn(),
    /// Called every [`NEXT_DEATH_MS`] until the end.
    pub(crate) still_busy: &'a dyn Fn(),
}

impl EndOfChildren<'_> {
    /// Kills and reaps until no child is left. If the caller is a subreaper or an init, orphans become its children, so
    /// no descendant is left either. Returns the processes that may not be signalled.
    ///
    /// The loop is driven by events: each death wakes it, and each new orphan appears with a death.
    pub(crate) fn run(&self, mut reaped: impl FnMut(&sys::ReapedChild)) -> Vec<i32> {
        let mut first = true;
        let mut escalation = None;
        let mut busy = BusyNotice::new();
        loop {
            // Drains before reaping, so that a later death wakes the loop again.
            sys::drain(self.deaths);
            for _ in 0..REAPED_AT_ONCE {
                match sys::wait_child(-1, sys::WNOHANG) {
                    Ok(Some(waited)) => {
                        first = false;
                        reaped(&waited);
                    }
                    Err(error) if sys::errno(&error) == sys::ECHILD => return Vec::new(),
                    Ok(None) | Err(_) => break,
                }
            }
            if first {
                first = false;
                await_death(self.deaths, FIRST_DEATH_MS);
                continue;
            }
            let escalation = escalation.get_or_insert_with(|| {
                (self.kill_at_once)();
                Escalation::new()
            });
            let round = escalation.kill(|_| false);
            if round.is_last {
                return round.given_up;
            }
            await_death(self.deaths, NEXT_DEATH_MS);
            busy.notify_host(self.still_busy);
        }
    }
}

/// Waits up to `timeout_ms` for a child's death, which makes this descriptor readable.
pub(crate) fn await_death(deaths: &OwnedFd, timeout_ms: i32) {
    let mut deaths = [PollFd { fd: deaths.as_raw_fd(), events: sys::POLLIN, revents: 0 }];
    let _ = sys::poll_any(&mut deaths, timeout_ms);
}

/// Reports regularly that an end is in progress, because deaths may come without a pause until it is complete.
pub(crate) struct BusyNotice {
    told: Instant,
}

impl BusyNotice {
    pub(crate) fn new() -> Self {
        Self { told: Instant::now() }
    }

    pub(crate) fn notify_host(&mut self, still_busy: impl Fn()) {
        const EVERY: Duration = Duration::from_millis(NEXT_DEATH_MS.unsigned_abs() as u64);
        if self.told.elapsed() >= EVERY {
            self.told = Instant::now();
            still_busy();
        }
    }
}
