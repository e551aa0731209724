//! Mailboxes.

mod memory;
