//! What can be done to a lease. All operations with receipts are a [`LeaseChange`], so a backend implements one method for them.

use std::time::Duration;

use crate::{DeadReason, LeaseExtension, MailboxError, NackOptions, check_visibility, telemetry};

/// What happens to the leases that receipts name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseChange {
    /// The message is done.
    Ack,
    /// The message comes back, and its attempt is recorded.
    Nack(NackOptions),
    /// The message comes back as if it had not been delivered.
    Release,
    /// The lease ends this long from now.
    Extend(Duration, LeaseExtension),
    /// The message becomes a dead letter.
    Bury(DeadReason),
}

impl LeaseChange {
    /// Every backend checks this first.
    pub fn check(&self) -> Result<(), MailboxError> {
        match self {
            Self::Nack(options) => options.check(),
            Self::Extend(visibility, _) => check_visibility(*visibility),
            Self::Ack | Self::Release | Self::Bury(_) => Ok(()),
        }
    }

    /// Reports that so many leases of a mailbox were changed. Every backend does this last.
    pub fn report(&self, mailbox: &str, leases: usize) {
        match self {
            Self::Ack => telemetry::acked(mailbox, leases),
            Self::Nack(_) | Self::Release => telemetry::nacked(mailbox, leases),
            Self::Extend(..) | Self::Bury(_) => {}
        }
    }
}

/// The result of an operation with one receipt.
pub(crate) fn one(changed: usize) -> Result<(), MailboxError> {
    if changed == 1 { Ok(()) } else { Err(MailboxError::ReceiptExpired) }
}
