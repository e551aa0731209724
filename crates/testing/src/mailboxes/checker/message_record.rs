//! A history, grouped by message.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use snakepit_mailbox::{LeaseExtension, MessageId, Receipt};

use crate::mailboxes::history::{BodyDigest, ClientOperation, HistoryEvent, HistoryMoment, LeaseEnd};

/// The record of each message.
#[derive(Default)]
pub(super) struct MessageRecords {
    pub(super) of: BTreeMap<MessageId, MessageRecord>,
    /// Bodies whose sends were never answered. Their messages may or may not exist.
    pub(super) unanswered: HashSet<BodyDigest>,
    /// Receives that never returned: each may have leased messages.
    pub(super) lost_receives: usize,
    /// Receipts that the mailbox issued more than once.
    pub(super) reused: Vec<Receipt>,
    /// Receipts that were accepted although no receive that returned had issued them.
    pub(super) unknown: Vec<Receipt>,
    pub(super) deliveries: usize,
}

/// The record of one message.
#[derive(Default)]
pub(super) struct MessageRecord {
    pub(super) sent: Option<SentMessage>,
    /// The leases of the message, in the order of their receives.
    pub(super) leases: Vec<LeaseRecord>,
}

pub(super) struct SentMessage {
    pub(super) body: BodyDigest,
    pub(super) invoked: HistoryMoment,
    pub(super) returned: HistoryMoment,
}

/// One delivery and every use of its receipt.
pub(super) struct LeaseRecord {
    pub(super) body: BodyDigest,
    pub(super) receipt: Receipt,
    pub(super) number: u32,
    pub(super) time: Duration,
    pub(super) invoked: HistoryMoment,
    pub(super) returned: HistoryMoment,
    pub(super) uses: Vec<LeaseUse>,
}

/// A use of a receipt. `returned` is `HistoryMoment::NEVER` if the mailbox did not answer.
pub(super) struct LeaseUse {
    pub(super) kind: LeaseUseKind,
    pub(super) is_accepted: Option<bool>,
    pub(super) invoked: HistoryMoment,
    pub(super) returned: HistoryMoment,
}

#[derive(Clone, Copy)]
pub(super) enum LeaseUseKind {
    End(LeaseEnd),
    Extend(Duration, LeaseExtension),
}

impl LeaseUse {
    /// Returns how the use ended the lease, unless it certainly did not end it.
    pub(super) fn possible_end(&self) -> Option<LeaseEnd> {
        match self.kind {
            LeaseUseKind::End(way) if self.is_accepted != Some(false) => Some(way),
            LeaseUseKind::End(_) | LeaseUseKind::Extend(..) => None,
        }
    }

    /// Returns how the use certainly ended the lease.
    pub(super) fn end(&self) -> Option<LeaseEnd> {
        self.possible_end().filter(|_| self.is_accepted == Some(true))
    }
}

impl LeaseRecord {
    /// Reports whether the delivery may have been released, in which case it does not count.
    pub(super) fn may_be_released(&self) -> bool {
        self.uses.iter().any(|it| it.possible_end() == Some(LeaseEnd::Release))
    }

    /// Reports whether the delivery was certainly released before this moment.
    pub(super) fn is_released_before(&self, moment: HistoryMoment) -> bool {
        self.uses.iter().any(|it| it.end() == Some(LeaseEnd::Release) && it.returned < moment)
    }
}

impl MessageRecord {
    pub(super) fn uses(&self) -> impl Iterator<Item = &LeaseUse> {
        self.leases.iter().flat_map(|lease| &lease.uses)
    }

    /// Returns the accepted acks.
    pub(super) fn acks(&self) -> impl Iterator<Item = &LeaseUse> {
        self.uses().filter(|it| it.end().is_some_and(LeaseEnd::is_done))
    }

    pub(super) fn may_be_acked(&self) -> bool {
        self.uses().any(|it| it.possible_end().is_some_and(LeaseEnd::is_done))
    }
}

impl MessageRecords {
    pub(super) fn new(events: &[HistoryEvent]) -> Self {
        let mut message_record = Self::default();
        let mut owners: HashMap<Receipt, (MessageId, usize)> = HashMap::new();
        for event in events {
            message_record.note_arrival(event, &mut owners);
        }
        for event in events {
            message_record.note_use(event, &owners);
        }
        message_record
    }

    fn note_arrival(&mut self, event: &HistoryEvent, owners: &mut HashMap<Receipt, (MessageId, usize)>) {
        let HistoryEvent { invoked, returned, .. } = *event;
        match &event.what {
            ClientOperation::Send { body, id: Some(id), .. } => {
                let sent =
                    SentMessage { body: *body, invoked, returned: returned.unwrap_or(HistoryMoment::NEVER) };
                // A second send with the same dedup key has the id of the first.
                self.of.entry(*id).or_default().sent.get_or_insert(sent);
            }
            ClientOperation::Send { body, id: None, is_refused: false } => {
                self.unanswered.insert(*body);
            }
            ClientOperation::Receive { lease, deliveries } => {
                let Some(returned) = returned else {
                    self.lost_receives += 1;
                    return;
                };
                for delivery in deliveries {
                    self.deliveries += 1;
                    let leases = &mut self.of.entry(delivery.id).or_default().leases;
                    if owners.insert(delivery.receipt.clone(), (delivery.id, leases.len())).is_some() {
                        self.reused.push(delivery.receipt.clone());
                    }
                    leases.push(LeaseRecord {
                        body: delivery.body,
                        receipt: delivery.receipt.clone(),
                        number: delivery.number,
                        time: *lease,
                        invoked,
                        returned,
                        uses: Vec::new(),
                    });
                }
            }
            ClientOperation::Send { is_refused: true, .. }
            | ClientOperation::End { .. }
            | ClientOperation::Extend { .. }
            | ClientOperation::Purge { .. }
            | ClientOperation::Redrive
            | ClientOperation::Cut
            | ClientOperation::WallJump => {}
        }
    }

    fn note_use(&mut self, event: &HistoryEvent, owners: &HashMap<Receipt, (MessageId, usize)>) {
        let (receipt, kind, is_accepted) = match &event.what {
            ClientOperation::End { receipt, way, is_accepted } => {
                (receipt, LeaseUseKind::End(*way), *is_accepted)
            }
            ClientOperation::Extend { receipt, lease, extension, is_accepted } => {
                (receipt, LeaseUseKind::Extend(*lease, *extension), *is_accepted)
            }
            ClientOperation::Send { .. }
            | ClientOperation::Receive { .. }
            | ClientOperation::Purge { .. }
            | ClientOperation::Redrive
            | ClientOperation::Cut
            | ClientOperation::WallJump => return,
        };
        let (invoked, returned) = (event.invoked, event.returned.unwrap_or(HistoryMoment::NEVER));
        let lease = owners.get(receipt).and_then(|(id, place)| self.of.get_mut(id)?.leases.get_mut(*place));
        match lease {
            Some(lease) => lease.uses.push(LeaseUse { kind, is_accepted, invoked, returned }),
            None if is_accepted == Some(true) => self.unknown.push(receipt.clone()),
            None => {}
        }
    }
}
