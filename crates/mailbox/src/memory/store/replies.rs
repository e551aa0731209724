//! Replies: where they are sent, and which are kept by the id of their request.

use std::time::SystemTime;

use super::{Store, after};
use crate::{MailboxError, MessageId, Receipt, Reply, SendOptions};

impl Store {
    /// Returns the mailbox that waits for a reply to the leased message, and the complete options of the reply.
    pub(crate) fn reply_to(
        &self,
        receipt: &Receipt,
        options: SendOptions,
        now: u64,
    ) -> Result<(Option<String>, SendOptions), MailboxError> {
        let slot = self.leased(receipt, now)?;
        let live = self.slots[slot as usize].as_ref().ok_or(MailboxError::ReceiptExpired)?;
        let reply_to = live.message.reply_to().map(str::to_owned);
        if reply_to.is_none() && live.message.keep_result().is_none() {
            return Err(MailboxError::NoReplyTo);
        }
        Ok((reply_to, live.message.answering(options)))
    }

    pub(crate) fn check_lease(&self, receipt: &Receipt, now: u64) -> Result<(), MailboxError> {
        self.leased(receipt, now).map(drop)
    }

    /// Removes the answered message, and keeps the reply if the sender asked for that.
    pub(crate) fn answer(
        &mut self,
        receipt: &Receipt,
        reply: impl FnOnce(MessageId) -> Reply,
        now: u64,
    ) -> Result<(), MailboxError> {
        let slot = self.leased(receipt, now)?;
        let message = self.remove(slot).ok_or(MailboxError::ReceiptExpired)?;
        if let Some(time) = message.keep_result() {
            self.replies.insert(message.id, reply(message.id), after(now, time), now);
            self.effects.answered = true;
        }
        Ok(())
    }

    pub(crate) fn result(&mut self, request: MessageId, now: u64) -> Option<Reply> {
        self.replies.find(&request, now)
    }

    pub(crate) fn next_id(&mut self, wall: SystemTime) -> MessageId {
        self.ids.next(wall)
    }
}
