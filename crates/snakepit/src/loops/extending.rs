//! Extends the leases of what a run has in hand, and tells of messages that take long.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::failpoint::{Step, reach};
use super::hand::Place;
use super::handling::Shared;
use super::settle::tell_lost;
use crate::mailbox::{MailboxError, Message};
use crate::telemetry::{Event, Level, emit_with};

/// How often leases are extended: two extensions may fail before a lease is over.
pub(super) fn period(visibility: Duration) -> Duration {
    (visibility / 3).max(Duration::from_millis(1))
}

/// Extends the leases of all that is in hand. False if that should be tried again soon.
pub(super) async fn extend_all(shared: &Shared) -> bool {
    let began = Instant::now();
    let held = shared.hand.all();
    let extensions = held.iter().map(|(place, message)| extend(*place, message, shared));
    let in_order = join_all(extensions).await.into_iter().all(|in_order| in_order);
    if in_order {
        shared.leases.extended.beat_at(began);
    }
    shared.slow.tell(shared);
    in_order
}

/// False if it should be tried again soon.
async fn extend(place: Place, message: &Message, shared: &Shared) -> bool {
    reach(Step::Extend);
    let extended = message.extend(shared.leases.visibility).await;
    reach(Step::Extended);
    match extended {
        Ok(()) => true,
        Err(MailboxError::ReceiptExpired) => {
            // If it was settled meanwhile, nothing is lost.
            if shared.hand.remove(place).0.is_some() {
                tell_lost(&shared.control, message);
            }
            true
        }
        Err(error) => {
            shared.trouble.note(&error);
            false
        }
    }
}

/// Those of the messages whose leases are still ours, for as long as the lease says. What fails otherwise is kept: it may be.
pub(super) async fn still_leased(messages: Vec<Message>, shared: &Shared) -> Vec<Message> {
    let visibility = shared.leases.visibility;
    let extended = join_all(messages.iter().map(|message| message.extend(visibility))).await;
    let kept = messages.into_iter().zip(extended).filter_map(|(message, extended)| match extended {
        Err(MailboxError::ReceiptExpired) => {
            tell_lost(&shared.control, &message);
            None
        }
        Ok(()) | Err(_) => Some(message),
    });
    kept.collect()
}

/// The messages that were told to take long, by the number of their handling, and how often that was.
#[derive(Debug, Default)]
pub(super) struct SlowMessages(Mutex<HashMap<u64, u32>>);

impl SlowMessages {
    /// Tells of each message that has been in hand for longer than its lease would have lasted, and again each time that this has
    /// doubled.
    fn tell(&self, shared: &Shared) {
        let in_hand = shared.control.in_hand();
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|number, _| in_hand.iter().any(|held| held.number == *number));
        for held in in_hand {
            let lasted = held.since.elapsed();
            let times = told.get(&held.number).copied().unwrap_or(0);
            let limit = |times: u32| shared.leases.visibility.saturating_mul(2_u32.saturating_pow(times));
            if lasted < limit(times) {
                continue;
            }
            let next = (times + 1..32).find(|times| lasted < limit(*times)).unwrap_or(32);
            told.insert(held.number, next);
            emit_with(Level::Warn, || Event::LoopMessageSlow {
                name: shared.control.name().into(),
                message_id: held.message.as_str().into(),
                trace: held.trace.as_deref().map(Into::into),
                lasted,
                since_beat: held.last_beat.elapsed(),
            });
        }
    }
}
