//! What happens to handled messages, also while the mailbox fails.

mod handling;
mod recovery;
mod replies;
mod settlement;
