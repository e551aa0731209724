//! Replies: sent to a mailbox, or kept by the id of their request, or both.

use rusqlite::params;

use super::{OperationResult, Transaction};
use crate::sqlite::operation::LeaseKey;
use crate::sqlite::storage::Creation;
use crate::sqlite::stored_message::{id, read_attributes, write_attributes};
use crate::sqlite::stored_time::{Micros, wall_time};
use crate::sqlite::transaction::queue_number;
use crate::{MailboxError, MessageId, Reply, SendOptions};

impl Transaction<'_> {
    pub(super) fn reply(
        &mut self,
        queue: i64,
        lease: LeaseKey,
        body: &[u8],
        options: &SendOptions,
    ) -> OperationResult<MessageId> {
        if self.leased(queue, lease)?.is_none() {
            return Err(MailboxError::ReceiptExpired.into());
        }
        let (reply_to, request, attributes, trace, keep_result) = self
            .sql("SELECT reply_to, id, attributes, trace, keep_result FROM message WHERE number = ?1")?
            .query_row([lease.message], |row| {
                let attributes = read_attributes(row.get::<_, Option<String>>(2)?.as_deref());
                let (reply_to, trace): (Option<String>, Option<String>) = (row.get(0)?, row.get(3)?);
                Ok((reply_to, id(row.get(1)?), attributes, trace, row.get::<_, Option<Micros>>(4)?))
            })?;
        let options = options.clone().answering(request, &attributes, trace.as_deref());
        let id = match reply_to {
            None if keep_result.is_none() => return Err(MailboxError::NoReplyTo.into()),
            None => self.next_id(),
            Some(name) if self.open_queues.is_closed(&name) => return Err(MailboxError::Closed(name).into()),
            Some(name) => {
                // The mailbox need not be open anywhere: the reply waits there.
                let to = queue_number(self.connection, &name, Creation::IfMissing)?;
                self.send(to.ok_or(MailboxError::Missing(name))?, body, &options)?
            }
        };
        if let Some(time) = keep_result {
            self.run("DELETE FROM result WHERE until <= ?1", [self.now])?;
            self.run(
                "INSERT OR REPLACE INTO result (queue, request, id, replied, until, until_wall, trace, attributes, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    queue,
                    request.0.as_bytes(),
                    id.0.as_bytes(),
                    self.wall,
                    self.now.saturating_add(time),
                    self.wall.saturating_add(time),
                    options.trace,
                    write_attributes(&options.attributes),
                    body
                ],
            )?;
            self.stir(queue);
        }
        self.ack(queue, lease)?;
        Ok(id)
    }

    pub(crate) fn result(&self, queue: i64, request: MessageId) -> OperationResult<Option<Reply>> {
        let sql = "SELECT id, replied, trace, attributes, body FROM result
                   WHERE request = ?1 AND queue = ?2 AND until > ?3";
        Ok(self.row(sql, params![request.0.as_bytes(), queue, self.now], |row| {
            Ok(Reply {
                id: id(row.get(0)?),
                in_reply_to: request,
                replied_at: wall_time(row.get(1)?),
                trace: row.get(2)?,
                attributes: read_attributes(row.get::<_, Option<String>>(3)?.as_deref()),
                body: row.get::<_, Vec<u8>>(4)?.into(),
            })
        })?)
    }
}
