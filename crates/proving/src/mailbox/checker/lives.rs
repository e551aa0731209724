//! A history, sorted by message.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use snakepit::mailbox::{Extension, MessageId, Receipt};

use crate::mailbox::history::{Digest, Event, Moment, Way, What};

/// What became of each message.
#[derive(Default)]
pub(super) struct Lives {
    pub(super) of: BTreeMap<MessageId, Life>,
    /// Bodies whose senders were never answered: they may be there, and may not.
    pub(super) unanswered: HashSet<Digest>,
    /// Receives that never returned, each of which may have taken messages along.
    pub(super) lost_receives: usize,
    /// Receipts that were given out more than once.
    pub(super) reused: Vec<Receipt>,
    /// Receipts that were accepted and never given out to anybody who could tell.
    pub(super) unknown: Vec<Receipt>,
    pub(super) deliveries: usize,
}

/// What became of one message.
#[derive(Default)]
pub(super) struct Life {
    pub(super) sent: Option<Sent>,
    /// In the order in which they were asked for.
    pub(super) leases: Vec<Lease>,
}

pub(super) struct Sent {
    pub(super) body: Digest,
    pub(super) invoked: Moment,
    pub(super) returned: Moment,
}

/// One delivery, and what was done with its receipt.
pub(super) struct Lease {
    pub(super) body: Digest,
    pub(super) receipt: Receipt,
    pub(super) number: u32,
    pub(super) time: Duration,
    pub(super) invoked: Moment,
    pub(super) returned: Moment,
    pub(super) uses: Vec<Use>,
}

/// What is not answered returns never.
pub(super) struct Use {
    pub(super) kind: Kind,
    pub(super) is_accepted: Option<bool>,
    pub(super) invoked: Moment,
    pub(super) returned: Moment,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    End(Way),
    Extend(Duration, Extension),
}

impl Use {
    /// How it ended the lease, unless it surely did not.
    pub(super) fn possible_end(&self) -> Option<Way> {
        match self.kind {
            Kind::End(way) if self.is_accepted != Some(false) => Some(way),
            Kind::End(_) | Kind::Extend(..) => None,
        }
    }

    /// How it surely ended the lease.
    pub(super) fn end(&self) -> Option<Way> {
        self.possible_end().filter(|_| self.is_accepted == Some(true))
    }
}

impl Lease {
    /// Whether it may have been given back as if it had not been.
    pub(super) fn may_be_released(&self) -> bool {
        self.uses.iter().any(|it| it.possible_end() == Some(Way::Release))
    }

    /// Whether it surely was, before this.
    pub(super) fn is_released_before(&self, moment: Moment) -> bool {
        self.uses.iter().any(|it| it.end() == Some(Way::Release) && it.returned < moment)
    }
}

impl Life {
    pub(super) fn uses(&self) -> impl Iterator<Item = &Use> {
        self.leases.iter().flat_map(|lease| &lease.uses)
    }

    /// The accepted acks.
    pub(super) fn acks(&self) -> impl Iterator<Item = &Use> {
        self.uses().filter(|it| it.end().is_some_and(Way::is_done))
    }

    pub(super) fn may_be_acked(&self) -> bool {
        self.uses().any(|it| it.possible_end().is_some_and(Way::is_done))
    }
}

impl Lives {
    pub(super) fn new(events: &[Event]) -> Self {
        let mut lives = Self::default();
        let mut owners: HashMap<Receipt, (MessageId, usize)> = HashMap::new();
        for event in events {
            lives.note_arrival(event, &mut owners);
        }
        for event in events {
            lives.note_use(event, &owners);
        }
        lives
    }

    fn note_arrival(&mut self, event: &Event, owners: &mut HashMap<Receipt, (MessageId, usize)>) {
        let Event { invoked, returned, .. } = *event;
        match &event.what {
            What::Send { body, id: Some(id), .. } => {
                let sent = Sent { body: *body, invoked, returned: returned.unwrap_or(Moment::NEVER) };
                // A second send with the same dedup key has the id of the first.
                self.of.entry(*id).or_default().sent.get_or_insert(sent);
            }
            What::Send { body, id: None, is_refused: false } => drop(self.unanswered.insert(*body)),
            What::Receive { lease, deliveries } => {
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
                    leases.push(Lease {
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
            What::Send { is_refused: true, .. }
            | What::End { .. }
            | What::Extend { .. }
            | What::Purge { .. }
            | What::Redrive
            | What::Cut
            | What::WallJump => {}
        }
    }

    fn note_use(&mut self, event: &Event, owners: &HashMap<Receipt, (MessageId, usize)>) {
        let (receipt, kind, is_accepted) = match &event.what {
            What::End { receipt, way, is_accepted } => (receipt, Kind::End(*way), *is_accepted),
            What::Extend { receipt, lease, extension, is_accepted } => {
                (receipt, Kind::Extend(*lease, *extension), *is_accepted)
            }
            What::Send { .. }
            | What::Receive { .. }
            | What::Purge { .. }
            | What::Redrive
            | What::Cut
            | What::WallJump => return,
        };
        let (invoked, returned) = (event.invoked, event.returned.unwrap_or(Moment::NEVER));
        let lease = owners.get(receipt).and_then(|(id, place)| self.of.get_mut(id)?.leases.get_mut(*place));
        match lease {
            Some(lease) => lease.uses.push(Use { kind, is_accepted, invoked, returned }),
            None if is_accepted == Some(true) => self.unknown.push(receipt.clone()),
            None => {}
        }
    }
}
