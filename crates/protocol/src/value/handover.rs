//! How our own types pass through serde whole, between their `Serialize` or `Deserialize` and our codec.
//!
//! serde knows no type for a shared byte buffer or for bytes that are encoded already. Our types announce themselves
//! by a name that only this codec knows, as a newtype struct; other formats look through it. The object itself is handed
//! over in a slot of the thread, which is open only while the codec waits for it.

use std::cell::RefCell;

use bytes::Bytes;

use super::{Encoded, Value, ValueError};

pub(super) const ANY_VALUE: &str = "$snakepit::Value";
pub(super) const BLOB: &str = "$snakepit::Blob";
pub(super) const ENCODED: &str = "$snakepit::Encoded";
pub(super) const BIG_INT: &str = "$snakepit::BigInt";
pub(super) const DATE_TIME: &str = "$snakepit::DateTime";
pub(super) const NAIVE_DATE_TIME: &str = "$snakepit::NaiveDateTime";

pub(super) enum Handed {
    Bytes(Bytes),
    Encoded(Encoded),
    Value(Value),
    Error(ValueError),
}

enum Slot {
    Closed,
    Open,
    Filled(Handed),
}

thread_local! {
    static SLOT: RefCell<Slot> = const { RefCell::new(Slot::Closed) };
}

/// Runs `give`, and takes what was given meanwhile.
pub(super) fn receive<R>(give: impl FnOnce() -> R) -> (R, Option<Handed>) {
    SLOT.set(Slot::Open);
    let result = give();
    (result, take())
}

/// Gives to the codec that waits; without one nothing is given and the answer is `false`.
pub(super) fn give(what: impl FnOnce() -> Handed) -> bool {
    let open = is_open();
    if open {
        SLOT.set(Slot::Filled(what()));
    }
    open
}

/// Whether our codec waits, and not that of another format.
pub(super) fn is_open() -> bool {
    SLOT.with_borrow(|slot| matches!(slot, Slot::Open))
}

/// Leaves something for the visitor that is called next.
pub(super) fn leave(what: Handed) {
    SLOT.set(Slot::Filled(what));
}

pub(super) fn take() -> Option<Handed> {
    match SLOT.replace(Slot::Closed) {
        Slot::Filled(handed) => Some(handed),
        Slot::Closed | Slot::Open => None,
    }
}
