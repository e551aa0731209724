//! Passes this crate's own types through serde unchanged, between their `Serialize` or `Deserialize` and the codec.
//!
//! serde has no type for a shared byte buffer or for bytes that are already encoded. These types present themselves as
//! a newtype struct with a name that only this codec knows; other formats ignore the name. The object itself is passed
//! through a thread-local slot, which is open only while the codec waits for the object.

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

/// Runs `give` with the slot open, and returns the object that was put into the slot.
pub(super) fn receive<R>(give: impl FnOnce() -> R) -> (R, Option<Handed>) {
    SLOT.set(Slot::Open);
    let result = give();
    (result, take())
}

/// Passes an object to the waiting codec. Returns false if no codec waits.
pub(super) fn give(what: impl FnOnce() -> Handed) -> bool {
    let open = is_open();
    if open {
        SLOT.set(Slot::Filled(what()));
    }
    open
}

/// Reports whether this crate's codec waits for an object, and not the codec of another format.
pub(super) fn is_open() -> bool {
    SLOT.with_borrow(|slot| matches!(slot, Slot::Open))
}

/// Puts an object into the slot for the visitor that runs next.
pub(super) fn leave(what: Handed) {
    SLOT.set(Slot::Filled(what));
}

pub(super) fn take() -> Option<Handed> {
    match SLOT.replace(Slot::Closed) {
        Slot::Filled(handed) => Some(handed),
        Slot::Closed | Slot::Open => None,
    }
}
