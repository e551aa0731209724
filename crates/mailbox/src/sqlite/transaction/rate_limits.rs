//! What delays the delivery of visible messages: a paused queue, a rate limit, and earlier messages of the
//! same group.
//!
//! Only the first message of a group is ready, so a receive never searches past a waiting group. A group that
//! has reached its rate limit is delayed until its period ends.

use rusqlite::{Connection, OptionalExtension, params};

use super::queues::settings_or_default;
use super::{OperationResult, Transaction, next_due};
use crate::backend::{RatePeriod, Throttle};
use crate::sqlite::storage::schema::state::DELAYED;
use crate::sqlite::stored_message::StoredMessage;
use crate::sqlite::stored_time::{Micros, micros};
use crate::{QueueSettings, RateLimit};

/// The key for the rate of the whole queue. No group has an empty name.
const WHOLE: &str = "";
/// How often a receive looks past groups that have reached their rate limit. Each look delays at most as many
/// of their messages as the receive asks for.
const LOOKS: usize = 100;

impl Transaction<'_> {
    /// Reports whether a message of the group is ready, delayed or leased. Then further messages wait behind
    /// it.
    pub(super) fn has_first(&self, queue: i64, group: &str) -> OperationResult<bool> {
        let sql =
            "SELECT 1 FROM message WHERE queue = ?1 AND group_key = ?2 AND state BETWEEN 0 AND 2 LIMIT 1";
        Ok(self.sql(sql)?.exists(params![queue, group])?)
    }

    /// Makes the next message of a group ready, after the first one has gone.
    pub(super) fn promote(&mut self, queue: i64, group: &str) -> OperationResult<()> {
        let promoted = self.run(
            "UPDATE message SET state = 0 WHERE number =
                 (SELECT number FROM message WHERE queue = ?1 AND group_key = ?2 AND state = -1 ORDER BY number LIMIT 1)",
            params![queue, group],
        )?;
        if promoted > 0 {
            // The promoted message may have expired.
            self.settled.retain(|settled| *settled != queue);
            self.stir(queue);
        }
        Ok(())
    }

    /// Returns up to `most` messages that may be delivered now. If there are none, also returns when to look
    /// again.
    pub(super) fn deliverable(
        &mut self,
        queue: i64,
        most: usize,
    ) -> OperationResult<(Vec<StoredMessage>, Option<Micros>)> {
        let settings = self.settings(queue)?;
        let most = match throttle(self.connection, queue, self.now, &settings)? {
            Throttle::AtMost(messages) => most.min(messages as usize),
            Throttle::Until(time) => return Ok((Vec::new(), Some(time as Micros))),
            Throttle::Paused => return Ok((Vec::new(), None)),
        };
        for _ in 0..LOOKS {
            let messages = self.ready(queue, most)?;
            if messages.is_empty() {
                return Ok((messages, next_due(self.connection, queue)?));
            }
            match &settings.group_rate_limit {
                Some(rate) if self.delay_by_rate(queue, &messages, rate)? => {}
                _ => return Ok((messages, None)),
            }
        }
        Ok((Vec::new(), Some(self.now)))
    }

    /// Delays the messages whose groups have reached their rate limit. Reports whether there were any.
    fn delay_by_rate(
        &mut self,
        queue: i64,
        messages: &[StoredMessage],
        rate: &RateLimit,
    ) -> OperationResult<bool> {
        let mut were_any = false;
        for message in messages {
            let Some(group) = &message.group else { continue };
            let period = period(self.connection, queue, group)?;
            if let (0, until) = rate.allowance(period, self.now as u64, micros(rate.per) as u64) {
                were_any = true;
                let until = until as Micros;
                self.run(
                    "UPDATE message SET state = ?1, due = ?2, due_wall = ?3 WHERE number = ?4",
                    params![DELAYED, until, self.wall.saturating_add(until - self.now), message.number],
                )?;
            }
        }
        Ok(were_any)
    }

    /// Counts delivered messages against the rate limits.
    pub(super) fn spend(&mut self, queue: i64, messages: &[StoredMessage]) -> OperationResult<()> {
        let settings = self.settings(queue)?;
        if let Some(rate) = &settings.rate_limit {
            self.spend_of(queue, WHOLE, rate, messages.len() as u32)?;
        }
        if let Some(rate) = &settings.group_rate_limit {
            for group in messages.iter().filter_map(|message| message.group.as_deref()) {
                self.spend_of(queue, group, rate, 1)?;
            }
            // Periods that are over have no effect. They are removed a few at a time.
            let over = self.now.saturating_sub(micros(rate.per));
            self.run(
                "DELETE FROM rate WHERE (queue, group_key) IN
                     (SELECT queue, group_key FROM rate WHERE queue = ?1 AND began <= ?2 AND group_key <> '' LIMIT 20)",
                params![queue, over],
            )?;
        }
        Ok(())
    }

    fn spend_of(&self, queue: i64, key: &str, rate: &RateLimit, messages: u32) -> OperationResult<()> {
        let period = period(self.connection, queue, key)?;
        let RatePeriod { began, used } =
            RatePeriod::spend(period, self.now as u64, micros(rate.per) as u64, messages);
        self.run(
            "INSERT OR REPLACE INTO rate (queue, group_key, began, used) VALUES (?1, ?2, ?3, ?4)",
            params![queue, key, began as i64, used],
        )?;
        Ok(())
    }
}

fn period(connection: &Connection, queue: i64, key: &str) -> rusqlite::Result<Option<RatePeriod>> {
    connection
        .prepare_cached("SELECT began, used FROM rate WHERE queue = ?1 AND group_key = ?2")?
        .query_row(params![queue, key], |row| {
            Ok(RatePeriod { began: row.get::<_, i64>(0)? as u64, used: row.get(1)? })
        })
        .optional()
}

fn throttle(
    connection: &Connection,
    queue: i64,
    now: Micros,
    settings: &QueueSettings,
) -> rusqlite::Result<Throttle> {
    settings.throttle(now as u64, |rate| Ok((period(connection, queue, WHOLE)?, micros(rate.per) as u64)))
}

/// Returns how many messages a queue may deliver, for callers that change nothing.
pub(crate) fn throttle_of(connection: &Connection, queue: i64, now: Micros) -> rusqlite::Result<Throttle> {
    throttle(connection, queue, now, &settings_or_default(connection, queue)?)
}
