//! How it stands with the backend, and how long to wait before the next try.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Control;
use crate::mailbox::{Backoff, MailboxError};
use crate::supervision::jitter::Chance;
use crate::telemetry::{Event, Level, emit_with};

/// Short at first, since most trouble passes; never so long that a backend that is back is not noticed.
const PAUSES: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(10), jitter: 0.25 };

/// The failures of a backend in a row.
#[derive(Debug)]
pub(super) struct Trouble {
    control: Control,
    in_a_row: AtomicU32,
}

impl Trouble {
    pub(super) fn new(control: Control) -> Self {
        Self { control, in_a_row: AtomicU32::new(0) }
    }

    /// It failed: what is to be waited before the next try.
    pub(super) fn note(&self, error: &MailboxError) -> Duration {
        let failures = self.in_a_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures == 1 {
            emit_with(Level::Warn, || Event::LoopTrouble {
                name: self.control.name().into(),
                reason: error.to_string().into(),
            });
        }
        self.control.set_trouble(Some(error.to_string()));
        PAUSES.pause(failures, Chance::draw().number())
    }

    /// It works.
    pub(super) fn is_over(&self) {
        // It is asked after each message, and almost always there was none.
        if self.in_a_row.load(Ordering::Relaxed) > 0 && self.in_a_row.swap(0, Ordering::Relaxed) > 0 {
            self.control.set_trouble(None);
            emit_with(Level::Info, || Event::LoopRecovered { name: self.control.name().into() });
        }
    }
}
