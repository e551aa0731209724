//! Faults at the steps of a transaction, for tests. `SNAKEPIT_MAILBOX_FAULT=commit:kill:3` kills the process
//! when it reaches the commit for the third time. `stop` stops the process instead, and `skip` leaves the
//! step out every time.
//!
//! The crate `fail` does not fit: when it is set from outside, it can return, sleep, pause, print or panic.
//! These tests must end the process between two steps, without running any destructor.

/// A step in the life of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FaultPoint {
    /// Before the transaction.
    Begin,
    /// In the transaction, before the first operation.
    Begun,
    /// After a statement that changes something.
    Statement,
    /// After an operation.
    Operation,
    /// Before the commit.
    Commit,
    /// After the commit, before any caller is told.
    Committed,
    /// Before other processes are notified.
    Notify,
    /// After other processes were notified, before the answers.
    Notified,
    /// After the answers.
    Answered,
}

/// What the caller does with the step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StepAction {
    Go,
    #[cfg_attr(not(feature = "failpoints"), expect(dead_code, reason = "only tests leave steps out"))]
    Skip,
}

#[cfg(not(feature = "failpoints"))]
#[inline]
pub(crate) fn reach(_: FaultPoint) -> StepAction {
    StepAction::Go
}

#[cfg(feature = "failpoints")]
pub(crate) use armed::reach;

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::Signal;

    use super::{FaultPoint, StepAction};
    use snakepit_custody as custody;

    struct TransactionFault {
        step: String,
        action: String,
        at: u64,
    }

    fn fault() -> Option<&'static TransactionFault> {
        static FAULT: OnceLock<Option<TransactionFault>> = OnceLock::new();
        let read = || {
            let text = std::env::var("SNAKEPIT_MAILBOX_FAULT").ok()?;
            let mut parts = text.split(':');
            let (step, action) = (parts.next()?.to_owned(), parts.next()?.to_owned());
            let at = parts.next().and_then(|at| at.parse().ok()).unwrap_or(1);
            Some(TransactionFault { step, action, at })
        };
        FAULT.get_or_init(read).as_ref()
    }

    pub(crate) fn reach(step: FaultPoint) -> StepAction {
        static REACHED: AtomicU64 = AtomicU64::new(0);
        let Some(fault) = fault() else { return StepAction::Go };
        if fault.step != format!("{step:?}").to_lowercase() {
            return StepAction::Go;
        }
        if fault.action == "skip" {
            return StepAction::Skip;
        }
        if REACHED.fetch_add(1, Ordering::Relaxed) + 1 == fault.at {
            let signal = if fault.action == "stop" { Signal::STOP } else { Signal::KILL };
            // The signal is sent to this thread. A signal to the process may reach another thread first, and
            // this one would complete the step before it stops.
            custody::raise(signal.as_raw());
        }
        StepAction::Go
    }
}
