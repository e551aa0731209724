//! What happens to handled messages, also while the mailbox fails.

mod handling;
mod outages;
mod recovery;
mod replies;
