//! Extends the leases of a run in time, and warns of slow messages and short leases.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::LeaseId;
use crate::failpoint::{LoopFailpoint, reach};
use crate::health::real_now;
use crate::mailbox::{MailboxError, Message};
use crate::receive::RunContext;
use crate::settle::report_lease_lost;
use crate::telemetry::{Event, Level, emit_with};
use crate::{Control, Heartbeat, RunOptions, locked};

/// The number of extensions per lease, so that two may fail before the lease ends.
const EXTENSIONS_PER_LEASE: u32 = 3;
/// The number of retries of a failed extension before the next one is due.
const RETRIES_PER_EXTENSION: u32 = 3;

/// Returns the period of extensions.
pub(crate) fn extension_period(visibility: Duration) -> Duration {
    (visibility / EXTENSIONS_PER_LEASE).max(Duration::from_millis(1))
}

/// Returns the pause before a failed extension is retried.
pub(crate) fn retry_period(visibility: Duration) -> Duration {
    extension_period(visibility) / RETRIES_PER_EXTENSION
}

/// The duration of leases, the time of their last extension, and whether they are long enough.
pub(crate) struct LeaseTimes {
    /// The start of the last extension of all leases.
    pub(crate) extended: Heartbeat,
    pub(crate) visibility: Duration,
    shutdown: Duration,
    longest_millis: AtomicU64,
    has_warned: AtomicBool,
}

impl LeaseTimes {
    pub(crate) fn new(options: &RunOptions) -> Self {
        Self {
            extended: Heartbeat::default(),
            visibility: options.visibility_timeout,
            shutdown: options.shutdown_timeout,
            longest_millis: AtomicU64::new(0),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Records how long a handling took. Warns once if a shutdown at the start of such a handling could outlast its
    /// lease.
    pub(crate) fn note_handling(&self, control: &Control, took: Duration) {
        let took = took.as_millis() as u64;
        let longest = Duration::from_millis(self.longest_millis.fetch_max(took, Ordering::Relaxed).max(took));
        let is_too_short = self.visibility <= self.shutdown.saturating_add(longest);
        if is_too_short && !self.has_warned.swap(true, Ordering::Relaxed) {
            emit_with(Level::Warn, || Event::LoopLeaseShort {
                name: control.name().into(),
                visibility: self.visibility,
                shutdown: self.shutdown,
                longest,
            });
        }
    }
}

/// Extends all leases of a run. Returns `false` if it should be retried soon.
pub(crate) async fn extend_all(run: &RunContext) -> bool {
    let began = real_now();
    let leased = run.leased.all();
    let extensions = leased.iter().map(|(id, message)| extend(*id, message, run));
    let all_extended = join_all(extensions).await.into_iter().all(|extended| extended);
    if all_extended {
        run.leases.extended.beat_at(began);
    }
    run.slow.report(run);
    all_extended
}

/// Extends one lease. Returns `false` if it should be retried soon.
async fn extend(id: LeaseId, message: &Message, run: &RunContext) -> bool {
    reach(LoopFailpoint::Extend);
    let extended = message.extend(run.leases.visibility).await;
    reach(LoopFailpoint::Extended);
    match extended {
        Ok(()) => true,
        Err(MailboxError::ReceiptExpired) => {
            // A message that was settled meanwhile is not lost.
            if run.leased.remove(id).0.is_some() {
                report_lease_lost(&run.control, message);
            }
            true
        }
        Err(error) => {
            run.availability.mailbox_failed(&error);
            false
        }
    }
}

/// Extends the leases of these messages, and returns those that are still leased. If the mailbox does not answer, a
/// message is kept.
pub(crate) async fn still_leased(messages: Vec<Message>, run: &RunContext) -> Vec<Message> {
    let visibility = run.leases.visibility;
    let extended = join_all(messages.iter().map(|message| message.extend(visibility))).await;
    let kept = messages.into_iter().zip(extended).filter_map(|(message, extended)| match extended {
        Err(MailboxError::ReceiptExpired) => {
            report_lease_lost(&run.control, &message);
            None
        }
        Ok(()) | Err(_) => Some(message),
    });
    kept.collect()
}

/// The number of warnings about each slow message, by the number of its handling.
#[derive(Debug, Default)]
pub(crate) struct SlowMessages(Mutex<HashMap<u64, u32>>);

impl SlowMessages {
    /// Warns of each message that has been handled for longer than one lease, and again whenever that time has doubled.
    fn report(&self, run: &RunContext) {
        let in_flight = run.control.in_flight_messages();
        let mut reported = locked(&self.0);
        reported.retain(|number, _| in_flight.iter().any(|held| held.number == *number));
        for held in in_flight {
            let lasted = held.since.elapsed();
            let times = reported.get(&held.number).copied().unwrap_or(0);
            let limit = |times: u32| run.leases.visibility.saturating_mul(2_u32.saturating_pow(times));
            if lasted < limit(times) {
                continue;
            }
            let next = (times + 1..u32::BITS).find(|times| lasted < limit(*times)).unwrap_or(u32::BITS);
            reported.insert(held.number, next);
            emit_with(Level::Warn, || Event::LoopMessageSlow {
                name: run.control.name().into(),
                message_id: held.message.as_str().into(),
                trace: held.trace.as_deref().map(Into::into),
                lasted,
                since_beat: held.last_beat.elapsed(),
            });
        }
    }
}
