//! The caller's own children and their end.
//!
//! The pid of a child that is not reaped still belongs to it, so a plain signal cannot hit a stranger.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::descendants;
use crate::sys::{self, PollFd};

/// The pids of the caller's children, in no order. The list may miss a child that started or ended meanwhile: callers repeat
/// until the kernel says that there is none.
///
/// The kernel confirms each of them: in a `/proc` of another PID namespace, the same numbers mean other processes.
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

/// Whom a round of signals reached.
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

/// Rounds of KILL, which become more thorough: most trees are gone after a few cheap ones.
pub(crate) struct Escalation {
    began: Instant,
    rounds: u32,
    /// Since when only processes are left that may not be signalled or cannot be reaped.
    alone_since: Option<Instant>,
}

/// After so many rounds and so much time, killing one by one does not converge.
const CHEAP_ROUNDS: u32 = 8;
const CHEAP_TIME: Duration = Duration::from_millis(50);

/// How long processes that may not be signalled get to end by themselves, as most setuid programs soon do.
const REFUSED_PATIENCE: Duration = Duration::from_secs(1);
/// How long ended processes get to become reapable, which a tracer may delay.
const DEAD_PATIENCE: Duration = Duration::from_millis(200);

impl Escalation {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), rounds: 0, alone_since: None }
    }

    /// One round of KILL to all processes except the spared ones and their descendants.
    pub(crate) fn kill(&mut self, spared: impl Fn(i32) -> bool) -> KillRound {
        self.rounds += 1;
        let thorough = self.rounds > CHEAP_ROUNDS && self.began.elapsed() > CHEAP_TIME;
        let mut signalled = if thorough { SignalOutcome::default() } else { kill(&spared) };
        // Descendants of a process that may not be signalled may themselves be signalled.
        if thorough || (signalled.reached.is_empty() && !signalled.refused.is_empty()) {
            signalled = descendants::stop_and_kill(spared);
        }
        self.round(signalled)
    }

    /// A round of KILL to a group whose orphans become the caller's children.
    pub(crate) fn kill_group(&mut self, group: i32) -> KillRound {
        // Refused only if no member may be signalled.
        let refused =
            matches!(sys::send_signal(-group, sys::SIGKILL), Err(error) if sys::errno(&error) == sys::EPERM);
        let alive = list().into_iter().filter(|pid| descendants::lives_in(*pid, group)).collect();
        let mut signalled = SignalOutcome::default();
        *if refused { &mut signalled.refused } else { &mut signalled.reached } = alive;
        self.round(signalled)
    }

    /// The round is the last one once, for a while, only processes were left that may not be signalled or are dead.
    fn round(&mut self, signalled: SignalOutcome) -> KillRound {
        let alone = signalled.reached.is_empty() && (!signalled.refused.is_empty() || all_are_dead());
        self.alone_since = alone.then(|| self.alone_since.unwrap_or_else(Instant::now));
        let patience = if signalled.refused.is_empty() { DEAD_PATIENCE } else { REFUSED_PATIENCE };
        let is_last = self.alone_since.is_some_and(|since| since.elapsed() > patience);
        let given_up = if is_last { signalled.refused } else { Vec::new() };
        KillRound { reached: signalled.reached, given_up, is_last }
    }
}

/// Whether all children have ended but cannot be reaped, because a tracer holds them.
fn all_are_dead() -> bool {
    let children = list();
    !children.is_empty() && children.into_iter().all(descendants::is_dead)
}

/// The result of a round of KILL.
pub(crate) struct KillRound {
    pub(crate) reached: Vec<i32>,
    /// After the last round: the processes that may not be signalled.
    pub(crate) given_up: Vec<i32>,
    /// Whether another round would change nothing.
    pub(crate) is_last: bool,
}

/// How many children are reaped in one go: a fork bomb must not keep the caller from everything else.
pub(crate) const REAPED_AT_ONCE: usize = 1000;

/// How long to wait for the first death before looking for more processes, in milliseconds: usually the processes that were
/// killed already are all there are.
pub(crate) const FIRST_DEATH_MS: i32 = 100;
/// How long to wait for a death before the next round, in milliseconds.
pub(crate) const NEXT_DEATH_MS: i32 = 50;

/// The end of all children, and of all that they leave behind.
pub(crate) struct EndOfChildren<'a> {
    /// Readable when a child has ended.
    pub(crate) deaths: &'a OwnedFd,
    /// Kills all of them at once, where that is possible: called if the first death was not the last.
    pub(crate) kill_at_once: &'a dyn Fn(),
    /// Called every [`NEXT_DEATH_MS`] until the end.
    pub(crate) still_busy: &'a dyn Fn(),
}

impl EndOfChildren<'_> {
    /// Kills and reaps until no child is left. If the caller is a subreaper or an init, orphans become its children, so at the
    /// end no descendant is left either. Returns the processes that may not be signalled.
    ///
    /// Event-driven: each death wakes it, and each new orphan comes with a death.
    pub(crate) fn run(&self, mut reaped: impl FnMut(&sys::ReapedChild)) -> Vec<i32> {
        let mut first = true;
        let mut escalation = None;
        let mut busy = BusyNotice::new();
        loop {
            // Before reaping, so that a later death is noticed.
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

/// Waits a moment for a child's death, which makes this descriptor readable.
pub(crate) fn await_death(deaths: &OwnedFd, timeout_ms: i32) {
    let mut deaths = [PollFd { fd: deaths.as_raw_fd(), events: sys::POLLIN, revents: 0 }];
    let _ = sys::poll_any(&mut deaths, timeout_ms);
}

/// Reports regularly that an end is under way: deaths may come without a pause for as long as it takes.
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
