//! Random steps: everything that a client can do with a mailbox.

use proptest::prelude::*;
use snakepit_mailbox::LeaseExtension;

/// A message to send. Times are in units.
#[derive(Clone, Debug)]
pub(super) struct ModelSend {
    pub(super) priority: i8,
    pub(super) delay: u32,
    pub(super) time_to_live: Option<u32>,
    pub(super) key: Option<u8>,
}

/// One step. A number selects a receipt or an id, modulo their count.
#[derive(Clone, Debug)]
pub(super) enum MailboxStep {
    Send(ModelSend),
    SendAll(Vec<ModelSend>),
    Receive { most: usize, lease: u32 },
    Use(usize, ReceiptUse),
    AckAll(Vec<usize>),
    SetLimit(u32),
    Pass(u32),
    Peek,
    Dead,
    Purge,
    Redrive(Option<Vec<usize>>),
    PurgeDead,
    Reopen,
}

/// What is done with a receipt.
#[derive(Clone, Debug)]
pub(super) enum ReceiptUse {
    Ack,
    Nack(u32),
    Release,
    Extend(u32, LeaseExtension),
    Bury,
}

fn sending() -> impl Strategy<Value = ModelSend> {
    let delay = prop_oneof![3 => Just(0_u32), 1 => 1..4_u32];
    let time_to_live = prop_oneof![3 => Just(None), 1 => (1..6_u32).prop_map(Some)];
    let key = prop_oneof![5 => Just(None), 1 => (0..3_u8).prop_map(Some)];
    (-1..=1_i8, delay, time_to_live, key).prop_map(|(priority, delay, time_to_live, key)| ModelSend {
        priority,
        delay,
        time_to_live,
        key,
    })
}

fn extension() -> impl Strategy<Value = LeaseExtension> {
    prop_oneof![Just(LeaseExtension::AtLeast), Just(LeaseExtension::Exactly)]
}

/// Generates a number that selects a receipt or an id.
fn number() -> impl Strategy<Value = usize> {
    0..1000_usize
}

fn used(how: impl Strategy<Value = ReceiptUse>) -> impl Strategy<Value = MailboxStep> {
    (number(), how).prop_map(|(number, how)| MailboxStep::Use(number, how))
}

fn step() -> impl Strategy<Value = MailboxStep> {
    let chosen = prop_oneof![Just(None), prop::collection::vec(number(), 0..4).prop_map(Some)];
    prop_oneof![
        8 => sending().prop_map(MailboxStep::Send),
        2 => prop::collection::vec(sending(), 2..4).prop_map(MailboxStep::SendAll),
        8 => (1..=4_usize, 0..6_u32).prop_map(|(most, lease)| MailboxStep::Receive { most, lease }),
        5 => used(Just(ReceiptUse::Ack)),
        2 => prop::collection::vec(number(), 0..4).prop_map(MailboxStep::AckAll),
        5 => used((0..4_u32).prop_map(ReceiptUse::Nack)),
        3 => used(Just(ReceiptUse::Release)),
        3 => used((0..6_u32, extension()).prop_map(|(time, how)| ReceiptUse::Extend(time, how))),
        2 => used(Just(ReceiptUse::Bury)),
        1 => (1..6_u32).prop_map(MailboxStep::SetLimit),
        6 => (1..4_u32).prop_map(MailboxStep::Pass),
        2 => Just(MailboxStep::Peek),
        2 => Just(MailboxStep::Dead),
        2 => chosen.prop_map(MailboxStep::Redrive),
        1 => Just(MailboxStep::Purge),
        1 => Just(MailboxStep::PurgeDead),
        1 => Just(MailboxStep::Reopen),
    ]
}

/// Generates a sequence of steps.
pub(super) fn steps() -> impl Strategy<Value = Vec<MailboxStep>> {
    prop::collection::vec(step(), 1..60)
}
