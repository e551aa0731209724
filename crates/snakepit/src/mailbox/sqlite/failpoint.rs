//! Faults on demand at the steps of a transaction, for tests: `SNAKEPIT_MAILBOX_FAULT=commit:kill:3` ends the process when it
//! gets there for the third time; `stop` stops it, `skip` leaves the step out, each time.

/// Where in the life of a group of orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Before the transaction.
    Begin,
    /// In the transaction, before the first order.
    Begun,
    /// After a statement that changes something.
    Statement,
    /// After an order.
    Order,
    /// Before the commit.
    Commit,
    /// After the commit, before anybody is told.
    Committed,
    /// Before the bell.
    Bell,
    /// After the bell, before the answers.
    Rung,
    /// After the answers.
    Answered,
}

/// What to do with the step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    Go,
    #[cfg_attr(not(feature = "failpoints"), expect(dead_code, reason = "only tests leave steps out"))]
    Skip,
}

#[cfg(not(feature = "failpoints"))]
#[inline]
pub(super) fn reach(_: Step) -> Then {
    Then::Go
}

#[cfg(feature = "failpoints")]
pub(super) use armed::reach;

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::Signal;

    use super::{Step, Then};
    use crate::custody;

    struct Fault {
        step: String,
        deed: String,
        at: u64,
    }

    fn fault() -> Option<&'static Fault> {
        static FAULT: OnceLock<Option<Fault>> = OnceLock::new();
        let read = || {
            let text = std::env::var("SNAKEPIT_MAILBOX_FAULT").ok()?;
            let mut parts = text.split(':');
            let (step, deed) = (parts.next()?.to_owned(), parts.next()?.to_owned());
            let at = parts.next().and_then(|at| at.parse().ok()).unwrap_or(1);
            Some(Fault { step, deed, at })
        };
        FAULT.get_or_init(read).as_ref()
    }

    pub(in super::super) fn reach(step: Step) -> Then {
        static REACHED: AtomicU64 = AtomicU64::new(0);
        let Some(fault) = fault() else { return Then::Go };
        if fault.step != format!("{step:?}").to_lowercase() {
            return Then::Go;
        }
        if fault.deed == "skip" {
            return Then::Skip;
        }
        if REACHED.fetch_add(1, Ordering::Relaxed) + 1 == fault.at {
            let signal = if fault.deed == "stop" { Signal::STOP } else { Signal::KILL };
            // To this thread: one to the process may reach another first, and the step would be over before this one stops.
            custody::raise(signal.as_raw());
        }
        Then::Go
    }
}
