//! How messages die, and what becomes of dead letters.

use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use super::{Desk, News, Outcome, Place};
use crate::mailbox::sqlite::clock::Micros;
use crate::mailbox::sqlite::order::Lease;
use crate::mailbox::sqlite::schema::state::{BEHIND, DEAD, READY};
use crate::mailbox::telling::hears_of_single_messages;
use crate::mailbox::{AttemptEnd, DeadReason, MessageId};

impl Desk<'_> {
    /// Does what was due before now: every operation that looks at messages, or puts one among the dead, begins with it.
    pub(super) fn settle(&mut self, at: Place) -> Outcome<()> {
        if self.settled.contains(&at.queue) {
            return Ok(());
        }
        let is_due = self
            .sql("SELECT 1 FROM message WHERE queue = ?1 AND due <= ?2 LIMIT 1")?
            .exists(params![at.queue, self.now])?;
        let mut deaths = self.deaths(
            "SELECT expires, number FROM message WHERE queue = ?1 AND state < 2 AND expires <= ?2",
            params![at.queue, self.now],
            &DeadReason::Expired,
        )?;
        if is_due {
            let limit = self.limit(at.queue)?;
            self.note_lapses(at)?;
            // Their last delivery has failed: whoever had it is gone, or took too long.
            deaths.extend(self.deaths(
                "SELECT due, number FROM message WHERE queue = ?1 AND due <= ?2 AND state = 2 AND deliveries >= ?3",
                params![at.queue, self.now, limit],
                &DeadReason::Deliveries,
            )?);
            // A message that is held outlives its time, but not its lease.
            deaths.extend(self.deaths(
                "SELECT max(due, expires), number FROM message
                 WHERE queue = ?1 AND due <= ?2 AND state = 2 AND deliveries < ?3 AND expires <= ?2",
                params![at.queue, self.now, limit],
                &DeadReason::Expired,
            )?);
        }
        deaths.sort_unstable_by_key(|(time, number, _)| (*time, *number));
        for (_, number, reason) in deaths {
            self.die(at.queue, number, &reason)?;
        }
        if is_due {
            self.run(
                "UPDATE message SET state = 0, due = NULL, due_wall = NULL WHERE queue = ?1 AND due <= ?2",
                params![at.queue, self.now],
            )?;
            self.stir(at.queue);
        }
        self.settled.push(at.queue);
        Ok(())
    }

    /// Notes whose leases have lapsed: the message remembers it, and those who listen hear of it.
    fn note_lapses(&mut self, at: Place) -> Outcome<()> {
        let mut statement = self.sql(
            "SELECT number, id, deliveries FROM message WHERE queue = ?1 AND due <= ?2 AND state = 2 ORDER BY due",
        )?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let lapsed: Vec<(i64, [u8; 16], u32)> =
            statement.query_map(params![at.queue, self.now], read)?.collect::<rusqlite::Result<_>>()?;
        for (number, id, deliveries) in lapsed {
            self.note_attempt(number, AttemptEnd::Lapse, None)?;
            if hears_of_single_messages() {
                self.news.push((at.queue, News::Lapsed(MessageId(Uuid::from_bytes(id)), deliveries)));
            }
        }
        Ok(())
    }

    /// When which message died, for one reason.
    fn deaths(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        reason: &DeadReason,
    ) -> Outcome<Vec<(Micros, i64, DeadReason)>> {
        let mut statement = self.sql(sql)?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, reason.clone()));
        let deaths = statement.query_map(params, read)?.collect::<rusqlite::Result<_>>()?;
        Ok(deaths)
    }

    /// A dead letter is the same row in another place, so it is never there twice.
    pub(super) fn die(&mut self, queue: i64, number: i64, reason: &DeadReason) -> Outcome<()> {
        if hears_of_single_messages() {
            let (id, deliveries) = self
                .sql("SELECT id, deliveries FROM message WHERE number = ?1")?
                .query_row([number], |row| Ok((row.get(0)?, row.get(1)?)))?;
            self.news.push((queue, News::Died(MessageId(Uuid::from_bytes(id)), reason.clone(), deliveries)));
        }
        let before = "SELECT group_key FROM message WHERE number = ?1 AND state <> -1";
        let first_of: Option<Option<String>> =
            self.sql(before)?.query_row([number], |row| row.get(0)).optional()?;
        let reason = serde_json::to_string(reason).unwrap_or_default();
        self.run(
            "UPDATE message SET state = ?1, due = NULL, due_wall = NULL, expires = NULL, expires_wall = NULL, died = ?2,
                 reason = ?3,
                 grave = (SELECT coalesce(max(grave), 0) + 1 FROM message WHERE queue = ?4 AND grave IS NOT NULL)
             WHERE number = ?5",
            params![DEAD, self.wall, reason, queue, number],
        )?;
        if let Some(Some(group)) = first_of {
            self.promote(queue, &group)?;
        }
        Ok(())
    }

    pub(super) fn bury(&mut self, at: Place, lease: Lease, reason: &DeadReason) -> Outcome<bool> {
        if self.leased(at, lease)?.is_none() {
            return Ok(false);
        }
        self.settle(at)?;
        self.note_attempt(lease.message, AttemptEnd::Bury, reason.error())?;
        self.die(at.queue, lease.message, reason)?;
        Ok(true)
    }

    pub(super) fn redrive(&mut self, at: Place, ids: Option<&[MessageId]>) -> Outcome<u64> {
        self.settle(at)?;
        let everyone = "SELECT number FROM message WHERE queue = ?1 AND grave IS NOT NULL ORDER BY grave";
        let numbers = match ids {
            None => self.numbers(everyone, [at.queue])?,
            Some(ids) => {
                let mut graves = Vec::new();
                for id in ids {
                    let found: Option<(i64, i64)> = self
                        .sql("SELECT grave, number FROM message WHERE id = ?1 AND grave IS NOT NULL AND queue = ?2")?
                        .query_row(params![id.0.as_bytes(), at.queue], |row| Ok((row.get(0)?, row.get(1)?)))
                        .optional()?;
                    graves.extend(found);
                }
                graves.sort_unstable();
                graves.dedup();
                graves.into_iter().map(|(_, number)| number).collect()
            }
        };
        for number in &numbers {
            let group: Option<String> = self
                .sql("SELECT group_key FROM message WHERE number = ?1")?
                .query_row([number], |row| row.get(0))?;
            let state = match &group {
                Some(group) if self.has_first(at.queue, group)? => BEHIND,
                _ => READY,
            };
            // With a new number, so that its place is behind all others; its leases are counted on.
            self.run(
                "INSERT INTO message (queue, state, expires, expires_wall, lifetime, lease, deliveries, priority, sent, id,
                     reply_to, trace, attributes, large, body, group_key, in_reply_to, keep_result)
                 SELECT queue, ?4, ?1 + lifetime, ?2 + lifetime, lifetime, lease, 0, priority, sent, id, reply_to, trace,
                     attributes, large, body, group_key, in_reply_to, keep_result
                 FROM message WHERE number = ?3",
                params![self.now, self.wall, number, state],
            )?;
            let again = self.connection.last_insert_rowid();
            self.run("UPDATE attempt SET message = ?1 WHERE message = ?2", [again, *number])?;
            self.run("DELETE FROM message WHERE number = ?1", [number])?;
        }
        if !numbers.is_empty() {
            self.stir(at.queue);
        }
        Ok(numbers.len() as u64)
    }

    pub(super) fn purge_dead_letters(&mut self, at: Place) -> Outcome<u64> {
        self.settle(at)?;
        self.run(
            "DELETE FROM large WHERE number IN
                 (SELECT large FROM message WHERE queue = ?1 AND grave IS NOT NULL AND large IS NOT NULL)",
            [at.queue],
        )?;
        self.run(
            "DELETE FROM attempt WHERE message IN
                 (SELECT number FROM message WHERE queue = ?1 AND grave IS NOT NULL)",
            [at.queue],
        )?;
        Ok(self.run("DELETE FROM message WHERE queue = ?1 AND grave IS NOT NULL", [at.queue])? as u64)
    }
}
