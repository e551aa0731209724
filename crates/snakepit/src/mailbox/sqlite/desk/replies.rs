//! Answers: in a mailbox, and kept by the id of their request.

use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use super::{Desk, Outcome, Place};
use crate::mailbox::sqlite::clock::{Micros, wall_time};
use crate::mailbox::sqlite::order::{Lease, expired, read_attributes};
use crate::mailbox::{MailboxError, MessageId, Reply, Send};

/// What a reply has to know of its request.
struct Asked {
    reply_to: Option<String>,
    id: MessageId,
    attributes: Option<String>,
    trace: Option<String>,
    keep_result: Option<Micros>,
}

impl Desk<'_> {
    pub(super) fn reply(
        &mut self,
        at: Place,
        lease: Lease,
        body: &[u8],
        options: &Send,
    ) -> Outcome<MessageId> {
        if self.leased(at, lease)?.is_none() {
            return Ok(expired()?);
        }
        let asked = self.asked(lease.message)?;
        let attributes = read_attributes(asked.attributes.as_deref());
        let options = options.clone().answering(asked.id, &attributes, asked.trace.as_deref());
        let id = match &asked.reply_to {
            None if asked.keep_result.is_none() => return Err(MailboxError::NoReplyTo.into()),
            None => (self.ids)(),
            Some(name) if self.gates.is_closed(name) => {
                return Err(MailboxError::Closed(name.clone()).into());
            }
            Some(name) => {
                // It waits there whether or not anybody has opened it.
                let queue = match self.queue(name)? {
                    Some(queue) => queue,
                    None => self.make_queue(name)?,
                };
                self.send(queue, body, &options)?
            }
        };
        if let Some(time) = asked.keep_result {
            self.keep(at, asked.id, id, (body, &options), time)?;
        }
        self.ack(at, lease)?;
        Ok(id)
    }

    fn asked(&self, message: i64) -> Outcome<Asked> {
        let mut statement =
            self.sql("SELECT reply_to, id, attributes, trace, keep_result FROM message WHERE number = ?1")?;
        let asked = statement.query_row([message], |row| {
            Ok(Asked {
                reply_to: row.get(0)?,
                id: MessageId(Uuid::from_bytes(row.get(1)?)),
                attributes: row.get(2)?,
                trace: row.get(3)?,
                keep_result: row.get(4)?,
            })
        })?;
        Ok(asked)
    }

    fn keep(
        &mut self,
        at: Place,
        request: MessageId,
        id: MessageId,
        (body, options): (&[u8], &Send),
        time: Micros,
    ) -> Outcome<()> {
        self.run("DELETE FROM result WHERE until <= ?1", [self.now])?;
        let attributes = (!options.attributes.is_empty())
            .then(|| serde_json::to_string(&options.attributes).unwrap_or_default());
        self.run(
            "INSERT OR REPLACE INTO result (queue, request, id, replied, until, until_wall, trace, attributes, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                at.queue,
                request.0.as_bytes(),
                id.0.as_bytes(),
                self.wall,
                self.now.saturating_add(time),
                self.wall.saturating_add(time),
                options.trace,
                attributes,
                body
            ],
        )?;
        self.stir(at.queue);
        Ok(())
    }

    pub(in crate::mailbox::sqlite) fn result(&self, at: Place, request: MessageId) -> Outcome<Option<Reply>> {
        let mut statement = self.sql(
            "SELECT id, replied, trace, attributes, body FROM result
             WHERE request = ?1 AND queue = ?2 AND until > ?3",
        )?;
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Reply {
                id: MessageId(Uuid::from_bytes(row.get(0)?)),
                in_reply_to: request,
                replied_at: wall_time(row.get(1)?),
                trace: row.get(2)?,
                attributes: read_attributes(row.get::<_, Option<String>>(3)?.as_deref()),
                body: row.get::<_, Vec<u8>>(4)?.into(),
            })
        };
        Ok(statement.query_row(params![request.0.as_bytes(), at.queue, self.now], read).optional()?)
    }
}
