//! The calls that a worker had begun when it died: they are suspected once it is known how it died, whether or not
//! their callers still wait.

use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::Signal;

use super::{Autopsy, Berth, Verdict};
use crate::adapter::Reason;
use crate::custody::ExitStatus;
use crate::pool::Command;
use crate::supervision::quarantine::Blame;
use crate::value::Encoded;

#[derive(Debug)]
pub(super) enum Suspects {
    /// It is not known yet how the worker ended.
    Gathering(Vec<(Arc<Command>, Encoded)>),
    /// It died.
    Died(Arc<Autopsy>, Blame),
    /// It was told to end, and nobody is to blame.
    Innocent,
}

impl Default for Suspects {
    fn default() -> Self {
        Self::Gathering(Vec::new())
    }
}

impl Berth {
    /// A call is lost that the worker has, or may have, begun. One that is dropped while the worker serves killed nobody.
    pub(crate) fn suspect(&self, command: &Arc<Command>, input: Encoded) {
        if !self.is_ending() {
            return;
        }
        let (autopsy, blame) = match &mut *lock(&self.suspects) {
            Suspects::Gathering(gathered) => {
                gathered.push((Arc::clone(command), input));
                return;
            }
            Suspects::Died(autopsy, blame) => (Arc::clone(autopsy), *blame),
            Suspects::Innocent => return,
        };
        self.pool.suspect(command, &input, &autopsy, blame);
    }

    /// It is known how the worker ended, and so whether its calls are to blame.
    pub(super) fn judge(&self, reason: &Reason, autopsy: &Arc<Autopsy>) {
        let Some(blame) = blame(reason, autopsy) else {
            self.decide(Suspects::Innocent);
            return;
        };
        for (command, input) in self.decide(Suspects::Died(Arc::clone(autopsy), blame)) {
            self.pool.suspect(&command, &input, autopsy, blame);
        }
    }

    fn decide(&self, verdict: Suspects) -> Vec<(Arc<Command>, Encoded)> {
        match std::mem::replace(&mut *lock(&self.suspects), verdict) {
            Suspects::Gathering(gathered) => gathered,
            Suspects::Died(..) | Suspects::Innocent => Vec::new(),
        }
    }
}

/// Whose doing the end of a worker was; none if it was told to end.
fn blame(reason: &Reason, autopsy: &Autopsy) -> Option<Blame> {
    match reason {
        Reason::Stopped | Reason::Replaced(_) | Reason::Stubborn(_) => None,
        Reason::Broken(_) => Some(Blame::Own),
        // It hung in a call, but what it waited for may be somebody else's.
        Reason::Stuck(_) => Some(Blame::Perhaps),
        Reason::Died => Some(match autopsy.exit.map(|exit| exit.status) {
            Some(ExitStatus::Signal(signal)) => blame_of_signal(signal, autopsy.oom),
            // Its keeper or its shim was killed first.
            Some(ExitStatus::Lost | ExitStatus::ShimKilled) => Blame::Perhaps,
            Some(ExitStatus::Code(_)) | None => Blame::Own,
        }),
    }
}

fn blame_of_signal(signal: i32, oom: Verdict) -> Blame {
    match Signal::from_named_raw(signal) {
        // The kernel takes the one that has the most.
        Some(Signal::KILL) if oom == Verdict::Yes => Blame::Own,
        // What people and programs send to end others.
        Some(Signal::KILL | Signal::TERM | Signal::INT | Signal::HUP | Signal::QUIT) => Blame::Perhaps,
        Some(_) | None => Blame::Own,
    }
}

fn lock(suspects: &Mutex<Suspects>) -> std::sync::MutexGuard<'_, Suspects> {
    suspects.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::CallId;
    use crate::custody::Exit;
    use crate::supervision::testing::crash;

    fn died(status: ExitStatus, oom: Verdict) -> Option<Blame> {
        let exit = Exit { status, max_rss_kib: 0, user_time: Duration::ZERO, system_time: Duration::ZERO };
        blame(&Reason::Died, &Autopsy { exit: Some(exit), oom, ..(*crash()).clone() })
    }

    #[test]
    fn a_crash_is_the_calls_own_doing_and_of_a_kill_nobody_knows() {
        let signal = |signal: Signal| ExitStatus::Signal(signal.as_raw());
        let own = [Signal::SEGV, Signal::ABORT, Signal::BUS, Signal::FPE, Signal::PIPE, Signal::XCPU];
        for status in own.map(signal).into_iter().chain([ExitStatus::Code(0), ExitStatus::Code(3)]) {
            assert_eq!(died(status, Verdict::No), Some(Blame::Own), "{status}");
        }
        let outside = [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
        for status in outside.map(signal).into_iter().chain([ExitStatus::Lost]) {
            assert_eq!(died(status, Verdict::No), Some(Blame::Perhaps), "{status}");
        }
        assert_eq!(died(signal(Signal::KILL), Verdict::Unknown), Some(Blame::Perhaps));
        assert_eq!(died(signal(Signal::KILL), Verdict::Yes), Some(Blame::Own), "it took too much memory");
    }

    #[test]
    fn who_was_ended_by_us_is_judged_by_why() {
        let judged = |reason: Reason| blame(&reason, &crash());
        assert_eq!(judged(Reason::Broken("it speaks in tongues".into())), Some(Blame::Own));
        assert_eq!(judged(Reason::Stuck(Duration::from_mins(1))), Some(Blame::Perhaps));
        for told in [Reason::Stopped, Reason::Replaced("it is old".into()), Reason::Stubborn(CallId(1))] {
            assert_eq!(judged(told), None);
        }
    }
}
