//! What can be done to a mailbox, by chance.

use proptest::prelude::*;
use snakepit::mailbox::Extension;

/// What is sent. Times are in units.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub(super) priority: i8,
    pub(super) delay: u32,
    pub(super) time_to_live: Option<u32>,
    pub(super) key: Option<u8>,
}

/// One thing that is done. Receipts and ids are chosen by a number, counted around.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Sending),
    SendAll(Vec<Sending>),
    Receive { most: usize, lease: u32 },
    Ack(usize),
    AckAll(Vec<usize>),
    Nack(usize, u32),
    Release(usize),
    Extend(usize, u32, Extension),
    Bury(usize),
    SetLimit(u32),
    Pass(u32),
    Peek,
    Dead,
    Purge,
    Redrive(Option<Vec<usize>>),
    PurgeDead,
    Reopen,
}

fn sending() -> impl Strategy<Value = Sending> {
    let delay = prop_oneof![3 => Just(0_u32), 1 => 1..4_u32];
    let time_to_live = prop_oneof![3 => Just(None), 1 => (1..6_u32).prop_map(Some)];
    let key = prop_oneof![5 => Just(None), 1 => (0..3_u8).prop_map(Some)];
    (-1..=1_i8, delay, time_to_live, key).prop_map(|(priority, delay, time_to_live, key)| Sending {
        priority,
        delay,
        time_to_live,
        key,
    })
}

fn extension() -> impl Strategy<Value = Extension> {
    prop_oneof![Just(Extension::AtLeast), Just(Extension::Exactly)]
}

/// The latest receipts are the ones that are worth something.
fn number() -> impl Strategy<Value = usize> {
    0..1000_usize
}

fn step() -> impl Strategy<Value = Step> {
    let chosen = prop_oneof![Just(None), prop::collection::vec(number(), 0..4).prop_map(Some)];
    prop_oneof![
        8 => sending().prop_map(Step::Send),
        2 => prop::collection::vec(sending(), 2..4).prop_map(Step::SendAll),
        8 => (1..=4_usize, 0..6_u32).prop_map(|(most, lease)| Step::Receive { most, lease }),
        5 => number().prop_map(Step::Ack),
        2 => prop::collection::vec(number(), 0..4).prop_map(Step::AckAll),
        5 => (number(), 0..4_u32).prop_map(|(number, pause)| Step::Nack(number, pause)),
        3 => number().prop_map(Step::Release),
        3 => (number(), 0..6_u32, extension()).prop_map(|(number, time, how)| Step::Extend(number, time, how)),
        2 => number().prop_map(Step::Bury),
        1 => (1..6_u32).prop_map(Step::SetLimit),
        6 => (1..4_u32).prop_map(Step::Pass),
        2 => Just(Step::Peek),
        2 => Just(Step::Dead),
        2 => chosen.prop_map(Step::Redrive),
        1 => Just(Step::Purge),
        1 => Just(Step::PurgeDead),
        1 => Just(Step::Reopen),
    ]
}

/// A sequence of them.
pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}
