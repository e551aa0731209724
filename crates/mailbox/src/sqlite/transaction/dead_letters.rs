//! How messages die, and what becomes of dead letters.

use rusqlite::{Params, params};

use super::{OperationResult, Transaction, TransactionEvent};
use crate::sqlite::storage::schema::state::{BEHIND, DEAD, READY};
use crate::sqlite::stored_message::id;
use crate::sqlite::stored_time::Micros;
use crate::telemetry::{self, MessageEvent};
use crate::{AttemptEnd, DeadReason, MessageId};

impl Transaction<'_> {
    /// Does what was due before now. Every operation that looks at messages, or lets one die, begins with it.
    pub(super) fn settle(&mut self, queue: i64) -> OperationResult<()> {
        if self.settled.contains(&queue) {
            return Ok(());
        }
        let is_due = self
            .sql("SELECT 1 FROM message WHERE queue = ?1 AND due <= ?2 LIMIT 1")?
            .exists(params![queue, self.now])?;
        let mut deaths = self.deaths(
            "SELECT expires, number FROM message WHERE queue = ?1 AND state < 2 AND expires <= ?2",
            params![queue, self.now],
            &DeadReason::Expired,
        )?;
        if is_due {
            let limit = self.limit(queue)?;
            self.record_lapses(queue)?;
            // Their last delivery has failed: its holder is gone, or took too long.
            deaths.extend(self.deaths(
                "SELECT due, number FROM message WHERE queue = ?1 AND due <= ?2 AND state = 2 AND deliveries >= ?3",
                params![queue, self.now, limit],
                &DeadReason::Deliveries,
            )?);
            // A leased message outlives its time to live, but not its lease.
            deaths.extend(self.deaths(
                "SELECT max(due, expires), number FROM message
                 WHERE queue = ?1 AND due <= ?2 AND state = 2 AND deliveries < ?3 AND expires <= ?2",
                params![queue, self.now, limit],
                &DeadReason::Expired,
            )?);
        }
        deaths.sort_unstable_by_key(|(time, number, _)| (*time, *number));
        for (_, number, reason) in deaths {
            self.die(queue, number, &reason)?;
        }
        if is_due {
            self.run(
                "UPDATE message SET state = 0, due = NULL, due_wall = NULL WHERE queue = ?1 AND due <= ?2",
                params![queue, self.now],
            )?;
            self.stir(queue);
        }
        self.settled.push(queue);
        Ok(())
    }

    /// Records and reports the leases that have lapsed.
    fn record_lapses(&mut self, queue: i64) -> OperationResult<()> {
        let lapsed: Vec<(i64, MessageId, u32)> = self.rows(
            "SELECT number, id, deliveries FROM message WHERE queue = ?1 AND due <= ?2 AND state = 2 ORDER BY due",
            params![queue, self.now],
            |row| Ok((row.get(0)?, id(row.get(1)?), row.get(2)?)),
        )?;
        for (number, id, deliveries) in lapsed {
            self.record_attempt(number, AttemptEnd::Lapse, None)?;
            let event = MessageEvent::LeaseLapsed(id, deliveries);
            telemetry::note(&mut self.events, || (queue, TransactionEvent::Message(event)));
        }
        Ok(())
    }

    /// Which messages died when, for one reason.
    fn deaths(
        &self,
        sql: &str,
        params: impl Params,
        reason: &DeadReason,
    ) -> OperationResult<Vec<(Micros, i64, DeadReason)>> {
        Ok(self.rows(sql, params, |row| Ok((row.get(0)?, row.get(1)?, reason.clone())))?)
    }

    /// Makes a message a dead letter: the same row in another state, so it is never there twice.
    pub(super) fn die(&mut self, queue: i64, number: i64, reason: &DeadReason) -> OperationResult<()> {
        let (id, deliveries, state, group): (MessageId, u32, i64, Option<String>) = self
            .sql("SELECT id, deliveries, state, group_key FROM message WHERE number = ?1")?
            .query_row([number], |row| Ok((id(row.get(0)?), row.get(1)?, row.get(2)?, row.get(3)?)))?;
        telemetry::note(&mut self.events, || {
            let event = MessageEvent::DeadLettered(id, reason.clone(), deliveries);
            (queue, TransactionEvent::Message(event))
        });
        let reason = serde_json::to_string(reason).unwrap_or_default();
        self.run(
            "UPDATE message SET state = ?1, due = NULL, due_wall = NULL, expires = NULL, expires_wall = NULL, died = ?2,
                 reason = ?3,
                 grave = (SELECT coalesce(max(grave), 0) + 1 FROM message WHERE queue = ?4 AND grave IS NOT NULL)
             WHERE number = ?5",
            params![DEAD, self.wall, reason, queue, number],
        )?;
        match group {
            Some(group) if state != BEHIND => self.promote(queue, &group),
            _ => Ok(()),
        }
    }

    pub(super) fn redrive(&mut self, queue: i64, ids: Option<&[MessageId]>) -> OperationResult<u64> {
        self.settle(queue)?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let select = "SELECT grave, number, group_key FROM message WHERE grave IS NOT NULL AND queue = ?1";
        let mut letters: Vec<(i64, i64, Option<String>)> = match ids {
            None => self.rows(select, [queue], read)?,
            Some(ids) => {
                let sql = format!("{select} AND id = ?2");
                let found = ids.iter().map(|id| self.row(&sql, params![queue, id.0.as_bytes()], read));
                found.filter_map(Result::transpose).collect::<rusqlite::Result<_>>()?
            }
        };
        letters.sort_unstable();
        letters.dedup();
        for (_, number, group) in &letters {
            let state = match group {
                Some(group) if self.has_first(queue, group)? => BEHIND,
                _ => READY,
            };
            // With a new number, so that it comes after all others; its leases are counted on.
            self.run(
                "INSERT INTO message (queue, state, expires, expires_wall, lifetime, lease, deliveries, priority, sent, id,
                     reply_to, trace, attributes, large, body, group_key, rate_key, in_reply_to, keep_result)
                 SELECT queue, ?4, ?1 + lifetime, ?2 + lifetime, lifetime, lease, 0, priority, sent, id, reply_to, trace,
                     attributes, large, body, group_key, rate_key, in_reply_to, keep_result
                 FROM message WHERE number = ?3",
                params![self.now, self.wall, number, state],
            )?;
            let again = self.connection.last_insert_rowid();
            self.run("UPDATE attempt SET message = ?1 WHERE message = ?2", [again, *number])?;
            self.run("DELETE FROM message WHERE number = ?1", [number])?;
        }
        if !letters.is_empty() {
            self.stir(queue);
        }
        Ok(letters.len() as u64)
    }
}
