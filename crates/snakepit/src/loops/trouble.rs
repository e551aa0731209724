//! How it stands with the backend and the pool, and how long to wait before the backend is tried again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Control;
use crate::mailbox::{Backoff, MailboxError};
use crate::supervision::jitter::Chance;
use crate::telemetry::{Event, Level, emit_with};

/// Short at first, since most trouble passes; never so long that a backend that is back is not noticed.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));

/// What keeps a loop from its work.
#[derive(Debug)]
pub(super) struct Trouble {
    control: Control,
    /// The failures of the backend in a row.
    in_a_row: AtomicU32,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    of_backend: Option<String>,
    of_pool: Option<String>,
}

impl Trouble {
    pub(super) fn new(control: Control) -> Self {
        Self { control, in_a_row: AtomicU32::new(0), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, known: &Known) {
        self.control.set_trouble(known.of_backend.as_ref().or(known.of_pool.as_ref()).cloned());
    }

    /// The backend failed: what is to be waited before the next try.
    pub(super) fn note(&self, error: &MailboxError) -> Duration {
        let failures = self.in_a_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures == 1 {
            self.tell(&error.to_string());
        }
        let mut known = self.known();
        known.of_backend = Some(error.to_string());
        self.show(&known);
        PAUSES.pause(failures, Chance::draw().number())
    }

    /// The backend works.
    pub(super) fn is_over(&self) {
        // It is asked after each message, and almost always there was none.
        if self.in_a_row.load(Ordering::Relaxed) > 0 && self.in_a_row.swap(0, Ordering::Relaxed) > 0 {
            let mut known = self.known();
            known.of_backend = None;
            self.show(&known);
            self.tell_recovery();
        }
    }

    /// Why the pool cannot serve, if it cannot.
    pub(super) fn note_pool(&self, reason: Option<String>) {
        let mut known = self.known();
        match (&known.of_pool, &reason) {
            (None, None) => return,
            (None, Some(reason)) => self.tell(reason),
            (Some(_), None) => self.tell_recovery(),
            (Some(_), Some(_)) => {}
        }
        known.of_pool = reason;
        self.show(&known);
    }

    fn tell(&self, reason: &str) {
        emit_with(Level::Warn, || Event::LoopTrouble {
            name: self.control.name().into(),
            reason: reason.into(),
        });
    }

    fn tell_recovery(&self) {
        emit_with(Level::Info, || Event::LoopRecovered { name: self.control.name().into() });
    }
}
