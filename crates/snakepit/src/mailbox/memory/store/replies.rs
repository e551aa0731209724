//! Answers: to whom they go, and those that are kept by the id of their request.

use std::time::SystemTime;

use super::{Store, after};
use crate::mailbox::{MailboxError, MessageId, Receipt, Reply, Send};

impl Store {
    /// Who waits for a reply to the message, and how it is sent.
    pub(in crate::mailbox::memory) fn reply_to(
        &self,
        receipt: &Receipt,
        options: Send,
        now: u64,
    ) -> Result<(Option<String>, Send), MailboxError> {
        let slot = self.leased(receipt, now)?;
        let letter = self.slots[slot as usize].as_ref().map(|held| &held.letter);
        let letter = letter.ok_or(MailboxError::ReceiptExpired)?;
        if letter.reply_to().is_none() && letter.keep_result().is_none() {
            return Err(MailboxError::NoReplyTo);
        }
        Ok((letter.reply_to().map(str::to_owned), letter.answering(options)))
    }

    /// Whether the receipt is a right now.
    pub(in crate::mailbox::memory) fn check_lease(
        &self,
        receipt: &Receipt,
        now: u64,
    ) -> Result<(), MailboxError> {
        self.leased(receipt, now).map(|_| ())
    }

    /// The message is answered: it is done, and its reply is kept, if somebody wants to read it by the id.
    pub(in crate::mailbox::memory) fn answer(
        &mut self,
        receipt: &Receipt,
        reply: impl FnOnce(MessageId) -> Reply,
        now: u64,
    ) -> Result<(), MailboxError> {
        let slot = self.leased(receipt, now)?;
        let Some(letter) = self.remove(slot) else { return Err(MailboxError::ReceiptExpired) };
        if let Some(time) = letter.keep_result() {
            self.results.keep(reply(letter.id), after(now, time), now);
            self.news.answered = true;
        }
        Ok(())
    }

    pub(in crate::mailbox::memory) fn result(&mut self, request: MessageId, now: u64) -> Option<Reply> {
        self.results.find(request, now)
    }

    pub(in crate::mailbox::memory) fn next_id(&mut self, wall: SystemTime) -> MessageId {
        self.ids.next(wall)
    }
}
