//! The caller's own children: who they are, and their end.
//!
//! As long as a child is not reaped its pid is its own, so a plain signal cannot hit a stranger.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::descendants;
use crate::sys::{self, PollFd};

/// The pids of the caller's children, in no order. It may miss one that was born or ended meanwhile:
/// callers repeat until the kernel says that there is none.
///
/// The kernel confirms each of them: the numbers in a `/proc` of another PID namespace are other processes.
pub(crate) fn list() -> Vec<i32> {
    let listed = descendants::children_of_caller();
    listed.into_iter().filter(|pid| sys::is_child(*pid)).collect()
}

/// KILL to the caller's children, but for those who are spared: how many could be sent it, and who may not be
/// signalled.
pub(crate) fn kill(spared: impl Fn(i32) -> bool) -> Signalled {
    let mut signalled = Signalled::default();
    for pid in list().into_iter().filter(|pid| !spared(*pid)) {
        signalled.note(pid, sys::send_signal(pid, sys::SIGKILL));
    }
    signalled
}

/// What came of a round of signals.
#[derive(Default)]
pub(crate) struct Signalled {
    /// Who got it.
    pub(crate) reached: Vec<i32>,
    /// Who belongs to another user by now, because it ran a setuid program.
    pub(crate) refused: Vec<i32>,
}

impl Signalled {
    pub(crate) fn note(&mut self, pid: i32, sent: std::io::Result<()>) {
        match sent {
            Ok(()) => self.reached.push(pid),
            Err(error) if sys::errno(&error) == sys::EPERM => self.refused.push(pid),
            // It is gone.
            Err(_) => {}
        }
    }
}

/// When rounds of killing are given up for a better way: most trees are gone after a few of them.
pub(crate) struct Escalation {
    began: Instant,
    rounds: u32,
    /// Since when nobody was left but those who may not be signalled, or cannot be reaped.
    alone_since: Option<Instant>,
}

/// After so many rounds, and so long, killing one by one does not converge.
const CHEAP_ROUNDS: u32 = 8;
const CHEAP_TIME: Duration = Duration::from_millis(50);

/// How long those who may not be signalled get to end by themselves, as most setuid programs soon do.
const REFUSED_PATIENCE: Duration = Duration::from_secs(1);
/// How long those who have ended get to be reaped, which a tracer may delay.
const DEAD_PATIENCE: Duration = Duration::from_millis(200);

impl Escalation {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), rounds: 0, alone_since: None }
    }

    /// One round of KILL to everybody but those who are spared and their descendants.
    pub(crate) fn kill(&mut self, spared: impl Fn(i32) -> bool) -> Round {
        self.rounds += 1;
        let thorough = self.rounds > CHEAP_ROUNDS && self.began.elapsed() > CHEAP_TIME;
        let mut signalled = if thorough { Signalled::default() } else { kill(&spared) };
        // Below those who may not be signalled there may be some who may.
        if thorough || (signalled.reached.is_empty() && !signalled.refused.is_empty()) {
            signalled = descendants::stop_and_kill(spared);
        }
        self.round(signalled)
    }

    /// A round of KILL to a group of the caller's, whose members become its children when they are orphaned.
    pub(crate) fn kill_group(&mut self, group: i32) -> Round {
        // Refused only if nobody of it may be signalled.
        let refused =
            matches!(sys::send_signal(-group, sys::SIGKILL), Err(error) if sys::errno(&error) == sys::EPERM);
        let alive = list().into_iter().filter(|pid| descendants::lives_in(*pid, group)).collect();
        let mut signalled = Signalled::default();
        *if refused { &mut signalled.refused } else { &mut signalled.reached } = alive;
        self.round(signalled)
    }

    /// It is the last one once nobody has been left for a while but those who may not be signalled or are dead.
    fn round(&mut self, signalled: Signalled) -> Round {
        let alone = signalled.reached.is_empty() && (!signalled.refused.is_empty() || all_are_dead());
        self.alone_since = alone.then(|| self.alone_since.unwrap_or_else(Instant::now));
        let patience = if signalled.refused.is_empty() { DEAD_PATIENCE } else { REFUSED_PATIENCE };
        let is_last = self.alone_since.is_some_and(|since| since.elapsed() > patience);
        let given_up = if is_last { signalled.refused } else { Vec::new() };
        Round { reached: signalled.reached, given_up, is_last }
    }
}

/// Whether all children have ended, and cannot be reaped: their tracer has not let go of them.
fn all_are_dead() -> bool {
    let children = list();
    !children.is_empty() && children.into_iter().all(descendants::is_dead)
}

/// What came of a round of KILL.
pub(crate) struct Round {
    pub(crate) reached: Vec<i32>,
    /// Who may not be signalled, after the last round.
    pub(crate) given_up: Vec<i32>,
    /// Whether another one would change nothing.
    pub(crate) is_last: bool,
}

/// How many deaths are reaped in one go, however many more there are: whoever forks faster than can be
/// reaped must not keep the caller from everything else.
pub(crate) const REAPED_AT_ONCE: usize = 1000;

/// How long the first death is awaited before anybody is looked for, in milliseconds: mostly those whom the caller has
/// killed already were everybody.
pub(crate) const FIRST_DEATH_MS: i32 = 100;
/// How long a death is awaited before the next round, in milliseconds.
pub(crate) const NEXT_DEATH_MS: i32 = 50;

/// The end of all children, and of all that they leave behind.
pub(crate) struct EndAll<'a> {
    /// Readable when a child has ended.
    pub(crate) deaths: &'a OwnedFd,
    /// Ends them at once, where something can: called if the first death was not the last.
    pub(crate) kill_at_once: &'a dyn Fn(),
    /// Called every [`NEXT_DEATH_MS`] while it lasts.
    pub(crate) still_busy: &'a dyn Fn(),
}

impl EndAll<'_> {
    /// Kills and reaps until no child is left. What a child leaves behind becomes the caller's child, if the
    /// caller is a subreaper or an init: so at the end no descendant is left. Except those who are given back: they
    /// may not be signalled.
    ///
    /// Event-driven: each death wakes it, and each new orphan comes with a death.
    pub(crate) fn run(&self, mut reaped: impl FnMut(&sys::Waited)) -> Vec<i32> {
        let mut first = true;
        let mut escalation = None;
        let mut busy = Busy::new();
        loop {
            // Before the reaping, so that a death after it is heard of.
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
                self.await_death(FIRST_DEATH_MS);
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
            self.await_death(NEXT_DEATH_MS);
            busy.tell(self.still_busy);
        }
    }

    /// Waits a moment for a child's death.
    fn await_death(&self, timeout_ms: i32) {
        let mut deaths = [PollFd { fd: self.deaths.as_raw_fd(), events: sys::POLLIN, revents: 0 }];
        let _ = sys::poll_any(&mut deaths, timeout_ms);
    }
}

/// Says by the clock that an end goes on: deaths may come without a pause for as long as it takes.
pub(crate) struct Busy {
    told: Instant,
}

impl Busy {
    pub(crate) fn new() -> Self {
        Self { told: Instant::now() }
    }

    pub(crate) fn tell(&mut self, still_busy: impl Fn()) {
        const EVERY: Duration = Duration::from_millis(NEXT_DEATH_MS.unsigned_abs() as u64);
        if self.told.elapsed() >= EVERY {
            self.told = Instant::now();
            still_busy();
        }
    }
}
