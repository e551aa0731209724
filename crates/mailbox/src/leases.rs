//! The changes to a lease. Every operation with receipts is a [`LeaseChange`], so a backend implements a single method
//! for all of them.

use std::time::Duration;

use crate::{DeadReason, LeaseExtension, MailboxError, NackOptions, check_visibility, telemetry};

/// A change to the leases of a set of receipts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseChange {
    /// Finishes the message.
    Ack,
    /// Gives the message back and records the attempt.
    Nack(NackOptions),
    /// Gives the message back as if it had not been delivered.
    Release,
    /// Sets the lease to end this long from now, subject to the [`LeaseExtension`].
    Extend(Duration, LeaseExtension),
    /// Moves the message to the dead letters.
    Bury(DeadReason),
}

impl LeaseChange {
    /// Checks the change's options. Every backend calls this first.
    pub fn check(&self) -> Result<(), MailboxError> {
        match self {
            Self::Nack(options) => options.check(),
            Self::Extend(visibility, _) => check_visibility(*visibility),
            Self::Ack | Self::Release | Self::Bury(_) => Ok(()),
        }
    }

    /// Reports the number of changed leases of a mailbox as an event. Every backend calls this last.
    pub fn report(&self, mailbox: &str, leases: usize) {
        match self {
            Self::Ack => telemetry::acked(mailbox, leases),
            Self::Nack(_) | Self::Release => telemetry::nacked(mailbox, leases),
            Self::Extend(..) | Self::Bury(_) => {}
        }
    }
}

/// Converts the number of changed leases to the result of an operation with one receipt.
pub(crate) fn one(changed: usize) -> Result<(), MailboxError> {
    if changed == 1 { Ok(()) } else { Err(MailboxError::ReceiptExpired) }
}
