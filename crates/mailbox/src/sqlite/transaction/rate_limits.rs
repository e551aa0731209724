//! What keeps visible messages from being delivered: a pause, a rate limit, and earlier messages of their group.
//!
//! Only the first message of a group is ready, so a receive never searches past a group that waits. A message whose key has used up its
//! rate is delayed until a period that has room for it, so it is in the way of others only once.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};

use super::queues::settings_or_default;
use super::{OperationResult, Transaction, next_due};
use crate::backend::{RatePeriod, Throttle};
use crate::sqlite::storage::schema::state::DELAYED;
use crate::sqlite::stored_message::StoredMessage;
use crate::sqlite::stored_time::{Micros, micros};
use crate::{QueueSettings, RateLimit};

/// The key of a whole queue's rate: no key has an empty name.
const WHOLE: &str = "";
/// How often a receive looks again behind keys that have used up their rate. Each look delays up to ten messages.
const LOOKS: usize = 100;

impl StoredMessage {
    /// The key whose rate limit the message counts for.
    fn key(&self) -> Option<&str> {
        self.rate_key.as_deref().or(self.group.as_deref())
    }
}

impl Transaction<'_> {
    /// Whether a message of the group is ready, delayed or leased: then further messages wait behind it.
    pub(super) fn has_first(&self, queue: i64, group: &str) -> OperationResult<bool> {
        let sql =
            "SELECT 1 FROM message WHERE queue = ?1 AND group_key = ?2 AND state BETWEEN 0 AND 2 LIMIT 1";
        Ok(self.sql(sql)?.exists(params![queue, group])?)
    }

    /// The first message of a group is gone: the next one becomes ready.
    pub(super) fn promote(&mut self, queue: i64, group: &str) -> OperationResult<()> {
        let promoted = self.run(
            "UPDATE message SET state = 0 WHERE number =
                 (SELECT number FROM message WHERE queue = ?1 AND group_key = ?2 AND state = -1 ORDER BY number LIMIT 1)",
            params![queue, group],
        )?;
        if promoted > 0 {
            // It may be too old by now.
            self.settled.retain(|settled| *settled != queue);
            self.stir(queue);
        }
        Ok(())
    }

    /// Up to `most` messages that may be delivered now. If there are none: when to look again.
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

    /// Delays messages whose keys have used up their rate. Returns whether there were any.
    fn delay_by_rate(
        &mut self,
        queue: i64,
        messages: &[StoredMessage],
        rate: &RateLimit,
    ) -> OperationResult<bool> {
        let mut were_any = false;
        // How many of these messages the period of their key has room for.
        let mut taken: HashMap<&str, u32> = HashMap::new();
        for message in messages {
            let Some(key) = message.key() else { continue };
            let period = period(self.connection, queue, key)?;
            let (left, until) = rate.allowance(period, self.now as u64, micros(rate.per) as u64);
            let taken = taken.entry(key).or_default();
            if *taken < left {
                *taken += 1;
                continue;
            }
            were_any = true;
            // A message that has had its place comes as soon as there is room.
            let until =
                if message.waits_for_rate { until as Micros } else { self.reserve(queue, key, rate, until)? };
            self.run(
                "UPDATE message SET state = ?1, due = ?2, due_wall = ?3, waits_for_rate = 1 WHERE number = ?4",
                params![DELAYED, until, self.wall.saturating_add(until - self.now), message.number],
            )?;
        }
        Ok(were_any)
    }

    /// Takes a place in a period of the key from `until` on. Returns when that period begins.
    fn reserve(&self, queue: i64, key: &str, rate: &RateLimit, until: u64) -> OperationResult<Micros> {
        let last = self.row(
            "SELECT reserved, reserved_used FROM rate WHERE queue = ?1 AND group_key = ?2",
            params![queue, key],
            |row| {
                let began: Option<i64> = row.get(0)?;
                let used = row.get(1)?;
                Ok(began.map(|began| RatePeriod { began: began as u64, used }))
            },
        )?;
        let place = rate.reserve(last.flatten(), until, micros(rate.per) as u64);
        self.run(
            "INSERT INTO rate (queue, group_key, began, used, reserved, reserved_used) VALUES (?1, ?2, ?3, 0, ?4, ?5)
             ON CONFLICT DO UPDATE SET reserved = excluded.reserved, reserved_used = excluded.reserved_used",
            params![queue, key, self.now, place.began as i64, place.used],
        )?;
        Ok(place.began as Micros)
    }

    /// Makes messages ready that wait for a later period of a rate that no longer holds.
    pub(super) fn end_waits_for_rate(&mut self, queue: i64) -> OperationResult<()> {
        self.run("UPDATE rate SET reserved = NULL, reserved_used = 0 WHERE queue = ?1", [queue])?;
        self.run(
            "UPDATE message SET state = 0, due = NULL, due_wall = NULL, waits_for_rate = NULL
             WHERE queue = ?1 AND state = 1 AND due IS NOT NULL AND waits_for_rate = 1",
            [queue],
        )?;
        Ok(())
    }

    /// Counts delivered messages.
    pub(super) fn spend(&mut self, queue: i64, messages: &[StoredMessage]) -> OperationResult<()> {
        let settings = self.settings(queue)?;
        if let Some(rate) = &settings.rate_limit {
            self.spend_of(queue, WHOLE, rate, messages.len() as u32)?;
        }
        if let Some(rate) = &settings.group_rate_limit {
            for key in messages.iter().filter_map(StoredMessage::key) {
                self.spend_of(queue, key, rate, 1)?;
            }
            // Periods that are over mean nothing any more. A few at a time.
            let over = self.now.saturating_sub(micros(rate.per));
            self.run(
                "DELETE FROM rate WHERE (queue, group_key) IN
                     (SELECT queue, group_key FROM rate WHERE queue = ?1 AND began <= ?2 AND coalesce(reserved, 0) <= ?2
                      AND group_key <> '' LIMIT 20)",
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
            "INSERT INTO rate (queue, group_key, began, used) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT DO UPDATE SET began = excluded.began, used = excluded.used",
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

/// How many messages a queue may deliver, for callers that only look.
pub(crate) fn throttle_of(connection: &Connection, queue: i64, now: Micros) -> rusqlite::Result<Throttle> {
    throttle(connection, queue, now, &settings_or_default(connection, queue)?)
}
