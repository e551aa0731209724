//! The calls that a worker had begun when it died. They are suspected once it is known how the worker died, whether or
//! not their callers still wait.

use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::Signal;

use super::{Autopsy, OomVerdict, Worker};
use crate::adapter::Reason;
use crate::call::PoolCommand;
use crate::custody::ExitStatus;
use crate::sharded::ShardRef;
use crate::value::Encoded;
use snakepit_policy::quarantine::{Blame, Charge};

#[derive(Debug)]
pub(super) enum Suspects {
    /// It is not known yet how the worker ended.
    Gathering(SuspectCalls),
    /// The worker died. Calls that are reported from now on share the blame.
    Died(Arc<Autopsy>, Charge),
    /// The worker was ordered to end, so no call is to blame.
    Cleared,
}

#[derive(Debug, Default)]
pub(super) struct SuspectCalls {
    suspects: Vec<(ShardRef<PoolCommand>, Encoded)>,
    /// The number of calls with several inputs, where it is unknown which input was at work.
    others: usize,
}

impl Default for Suspects {
    fn default() -> Self {
        Self::Gathering(SuspectCalls::default())
    }
}

impl Worker {
    /// Suspects a lost call that the worker has begun, or may have begun. Ignores a call that is dropped while the
    /// worker serves: it killed no worker.
    pub(super) fn suspect_call(&self, command: &ShardRef<PoolCommand>, input: Encoded) {
        if !self.is_ending() {
            return;
        }
        let (autopsy, charge) = match &mut *lock(&self.suspects) {
            Suspects::Gathering(gathered) => {
                gathered.suspects.push((command.clone(), input));
                return;
            }
            Suspects::Died(autopsy, charge) => {
                charge.among += 1;
                (Arc::clone(autopsy), *charge)
            }
            Suspects::Cleared => return,
        };
        self.queue.suspect(command, &input, &autopsy, charge);
    }

    /// Counts the lost calls of a batch. It is unknown which of them the worker died of, so none is suspected, but they
    /// share the blame.
    pub(super) fn suspect_nobody(&self) {
        match &mut *lock(&self.suspects) {
            Suspects::Gathering(gathered) if self.is_ending() => gathered.others += 1,
            Suspects::Died(_, charge) => charge.among += 1,
            Suspects::Gathering(_) | Suspects::Cleared => {}
        }
    }

    /// Decides whether the worker's calls are to blame, now that it is known how the worker ended.
    pub(super) fn judge(&self, reason: &Reason, autopsy: &Arc<Autopsy>) {
        let Some(blame) = blame(reason, autopsy) else {
            *lock(&self.suspects) = Suspects::Cleared;
            return;
        };
        let mut suspects = lock(&self.suspects);
        let gathered = match &mut *suspects {
            Suspects::Gathering(gathered) => std::mem::take(gathered),
            Suspects::Died(..) | Suspects::Cleared => return,
        };
        let charge = Charge { blame, among: gathered.suspects.len() + gathered.others };
        *suspects = Suspects::Died(Arc::clone(autopsy), charge);
        drop(suspects);
        for (command, input) in gathered.suspects {
            self.queue.suspect(&command, &input, autopsy, charge);
        }
    }
}

/// Returns how far a call is to blame for the end of a worker, or `None` if the worker was ordered to end.
fn blame(reason: &Reason, autopsy: &Autopsy) -> Option<Blame> {
    match reason {
        Reason::Stopped | Reason::Replaced(_) | Reason::CancelIgnored(_) => None,
        Reason::Broken(_) => Some(Blame::Own),
        // The worker hung in a call, but the call may have waited for something else.
        Reason::Stuck(_) => Some(Blame::Perhaps),
        Reason::Died => Some(match autopsy.exit.map(|exit| exit.status) {
            Some(ExitStatus::Signal(signal)) => blame_of_signal(signal, autopsy.oom),
            // The worker's keeper or its shim was killed first.
            Some(ExitStatus::Lost | ExitStatus::ShimKilled) => Blame::Perhaps,
            Some(ExitStatus::Code(_)) | None => Blame::Own,
        }),
    }
}

fn blame_of_signal(signal: i32, oom: OomVerdict) -> Blame {
    match Signal::from_named_raw(signal) {
        // The kernel kills the process that has the most memory.
        Some(Signal::KILL) if oom == OomVerdict::Yes => Blame::Own,
        // Signals that people and programs send to end other processes.
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
    use crate::adapter::ReplaceReason;
    use crate::call::CallId;
    use crate::call::crash;
    use crate::custody::Exit;

    fn died(status: ExitStatus, oom: OomVerdict) -> Option<Blame> {
        let exit = Exit::new(status);
        blame(&Reason::Died, &Autopsy { exit: Some(exit), oom, ..crash() })
    }

    #[test]
    fn a_crash_is_blamed_on_the_call_and_a_kill_only_perhaps() {
        let signal = |signal: Signal| ExitStatus::Signal(signal.as_raw());
        let own = [Signal::SEGV, Signal::ABORT, Signal::BUS, Signal::FPE, Signal::PIPE, Signal::XCPU];
        for status in own.map(signal).into_iter().chain([ExitStatus::Code(0), ExitStatus::Code(3)]) {
            assert_eq!(died(status, OomVerdict::No), Some(Blame::Own), "{status}");
        }
        let outside = [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
        for status in outside.map(signal).into_iter().chain([ExitStatus::Lost]) {
            assert_eq!(died(status, OomVerdict::No), Some(Blame::Perhaps), "{status}");
        }
        assert_eq!(died(signal(Signal::KILL), OomVerdict::Unknown), Some(Blame::Perhaps));
        assert_eq!(died(signal(Signal::KILL), OomVerdict::Yes), Some(Blame::Own), "it took too much memory");
    }

    #[test]
    fn a_worker_ended_by_the_engine_is_judged_by_the_reason() {
        let judged = |reason: Reason| blame(&reason, &crash());
        assert_eq!(judged(Reason::Broken("it speaks in tongues".into())), Some(Blame::Own));
        assert_eq!(judged(Reason::Stuck(Duration::from_mins(1))), Some(Blame::Perhaps));
        for told in
            [Reason::Stopped, Reason::Replaced(ReplaceReason::Reloaded), Reason::CancelIgnored(CallId(1))]
        {
            assert_eq!(judged(told), None);
        }
    }
}
