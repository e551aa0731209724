//! Whether the mailbox and the pool of a loop work, and how long to wait before the next attempt at the mailbox.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::mailbox::{Backoff, MailboxError};
use crate::telemetry::{Event, Level, emit_with};
use crate::{Control, locked};

/// The pauses are short at first, because most trouble passes, and never so long that the recovery of a mailbox goes
/// unnoticed.
const MAILBOX_PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));

/// What keeps a loop from working.
#[derive(Debug)]
pub(crate) struct LoopAvailability {
    control: Control,
    /// Spares the lock when success is reported, which happens after each message.
    mailbox_fails: AtomicBool,
    known: Mutex<KnownTrouble>,
}

#[derive(Debug, Default)]
struct KnownTrouble {
    /// The number of the mailbox's failures in a row, and the last failure.
    mailbox: Option<(u32, String)>,
    pool: Option<String>,
}

impl LoopAvailability {
    pub(super) fn new(control: Control) -> Self {
        Self { control, mailbox_fails: AtomicBool::new(false), known: Mutex::default() }
    }

    fn publish(&self, known: &KnownTrouble) {
        let mailbox = known.mailbox.as_ref().map(|(_, reason)| reason);
        self.control.set_trouble(mailbox.or(known.pool.as_ref()).cloned());
    }

    /// Records a failure of the mailbox. Returns how long to wait before the next attempt.
    pub(crate) fn mailbox_failed(&self, error: &MailboxError) -> Duration {
        let reason = error.to_string();
        let mut known = locked(&self.known);
        let failures = known.mailbox.as_ref().map_or(1, |(failures, _)| failures.saturating_add(1));
        if failures == 1 {
            self.report_failure(&reason);
        }
        known.mailbox = Some((failures, reason));
        self.mailbox_fails.store(true, Ordering::Relaxed);
        self.publish(&known);
        MAILBOX_PAUSES.pause(failures, fastrand::f64())
    }

    /// Records that the mailbox works.
    pub(crate) fn mailbox_works(&self) {
        if !self.mailbox_fails.load(Ordering::Relaxed) {
            return;
        }
        let mut known = locked(&self.known);
        if known.mailbox.take().is_some() {
            self.mailbox_fails.store(false, Ordering::Relaxed);
            self.publish(&known);
            self.report_recovery();
        }
    }

    /// Records why the pool cannot serve, or that it can.
    pub(super) fn set_pool_trouble(&self, reason: Option<String>) {
        let mut known = locked(&self.known);
        match (&known.pool, &reason) {
            (None, None) => return,
            (None, Some(reason)) => self.report_failure(reason),
            (Some(_), None) => self.report_recovery(),
            (Some(_), Some(_)) => {}
        }
        known.pool = reason;
        self.publish(&known);
    }

    fn report_failure(&self, reason: &str) {
        emit_with(Level::Warn, || Event::LoopTrouble {
            name: self.control.name().into(),
            reason: reason.into(),
        });
    }

    fn report_recovery(&self) {
        emit_with(Level::Info, || Event::LoopRecovered { name: self.control.name().into() });
    }
}
