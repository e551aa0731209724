//! The content of a queue, for callers that only inspect it. Messages that are due are shown in the state
//! that the next receive will give them, and are not changed.

use std::sync::LazyLock;

use rusqlite::{OptionalExtension, Row, params};

use super::{OperationResult, Transaction};
use crate::backend::{TimeToLive, given_up, remember_attempt};
use crate::sqlite::storage::schema::state::{BEHIND, DEAD, DELAYED, LEASED, READY};
use crate::sqlite::stored_message::{StoredDeadLetter, StoredMessage};
use crate::sqlite::stored_time::{time, wall_time};
use crate::{Attempt, AttemptEnd, DeadReason, MessageCounts, MessageId, MessageState};

/// The time to live is over, but the message is not yet marked as dead. `?2` is now.
const EXPIRED: &str = "state < 2 AND expires <= ?2";
/// The lease has lapsed, and the message has no delivery left or is too old. `?2` is now, and `?3` the
/// delivery limit.
const EXHAUSTED: &str = "state = 2 AND due <= ?2 AND (deliveries >= ?3 OR expires <= ?2)";
/// The lease or delay is over, but the message is not yet marked as ready.
const BACK: &str =
    "due <= ?2 AND (state = 1 OR (state = 2 AND deliveries < ?3)) AND (expires IS NULL OR expires > ?2)";

/// Selects the numbers of the messages that become the first of their groups because the first message is due
/// to die. NULL where no message follows.
static NEXT_OF_GROUPS: LazyLock<String> = LazyLock::new(|| {
    let next = "SELECT (SELECT next.number FROM message AS next
                        WHERE next.queue = ?1 AND next.group_key = head.group_key AND next.state = -1
                              AND (next.expires IS NULL OR next.expires > ?2)
                        ORDER BY next.number LIMIT 1) AS number
                FROM message AS head";
    let heads = "queue = ?1 AND group_key IS NOT NULL AND state >= 0";
    format!(
        "{next} INDEXED BY mortal WHERE {heads} AND {EXPIRED}
         UNION ALL {next} INDEXED BY timed WHERE {heads} AND {EXHAUSTED}"
    )
});

/// Reads the stored reason of a dead letter.
fn read_reason(text: Option<String>) -> DeadReason {
    let text = text.unwrap_or_default();
    serde_json::from_str(&text).unwrap_or(DeadReason::Failed { error: text })
}

impl Transaction<'_> {
    fn number(&mut self, queue: i64, sql: &str) -> OperationResult<u64> {
        let limit = self.limit(queue)?;
        let mut statement = self.sql(sql)?;
        let number: i64 = match statement.parameter_count() {
            2 => statement.query_row(params![queue, self.now], |row| row.get(0))?,
            _ => statement.query_row(params![queue, self.now, limit], |row| row.get(0))?,
        };
        Ok(number as u64)
    }

    /// Returns how many messages are marked with a state, even if they are due to leave it.
    fn tally(&self, queue: i64, state: i64) -> OperationResult<u64> {
        let sql = "SELECT messages FROM tally WHERE queue = ?1 AND state = ?2";
        let number: Option<i64> = self.row(sql, [queue, state], |row| row.get(0))?;
        Ok(number.unwrap_or(0) as u64)
    }

    /// Counts the messages in each state. The time that this takes depends on the number of due messages that
    /// nobody has settled yet, and not on the number of all messages.
    pub(super) fn count(&mut self, queue: i64) -> OperationResult<MessageCounts> {
        static SQL: LazyLock<[String; 9]> = LazyLock::new(|| {
            let mortal = "SELECT count(*) FROM message INDEXED BY mortal WHERE queue = ?1";
            let timed = "SELECT count(*) FROM message INDEXED BY timed WHERE queue = ?1";
            [
                format!("{mortal} AND {EXPIRED} AND state = 0"),
                format!("{timed} AND {BACK}"),
                format!("{timed} AND due <= ?2 AND state = 2"),
                format!("{timed} AND due <= ?2 AND state = 1"),
                format!("{mortal} AND {EXPIRED} AND state = 1 AND due > ?2"),
                format!("{mortal} AND {EXPIRED} AND state = -1"),
                format!("{mortal} AND {EXPIRED}"),
                format!("{timed} AND {EXHAUSTED}"),
                format!("SELECT count(number) FROM ({})", *NEXT_OF_GROUPS),
            ]
        });
        let [too_old, back, lapsed, over, expired_delays, expired_behind, expired, exhausted, next] = &*SQL;
        let delayed = self.tally(queue, DELAYED)? + self.tally(queue, BEHIND)?;
        let next = self.number(queue, next)?;
        let not_delayed = next
            + self.number(queue, over)?
            + self.number(queue, expired_delays)?
            + self.number(queue, expired_behind)?;
        let ready = self.tally(queue, READY)?.saturating_sub(self.number(queue, too_old)?);
        Ok(MessageCounts {
            visible: ready + next + self.number(queue, back)?,
            in_flight: self.tally(queue, LEASED)?.saturating_sub(self.number(queue, lapsed)?),
            delayed: delayed.saturating_sub(not_delayed),
            dead: self.tally(queue, DEAD)? + self.number(queue, expired)? + self.number(queue, exhausted)?,
        })
    }

    pub(super) fn peek(&mut self, queue: i64, most: usize) -> OperationResult<Vec<StoredMessage>> {
        static SQL: LazyLock<String> = LazyLock::new(|| {
            let columns = StoredMessage::COLUMNS;
            format!(
                "SELECT * FROM (
                     SELECT * FROM (
                         SELECT {columns} FROM message WHERE queue = ?1 AND state = 0 AND (expires IS NULL OR expires > ?2)
                         ORDER BY priority DESC, number LIMIT ?4)
                     UNION ALL SELECT {columns} FROM message WHERE queue = ?1 AND {BACK}
                     UNION ALL SELECT {columns} FROM message WHERE number IN ({}))
                 ORDER BY priority DESC, number LIMIT ?4",
                *NEXT_OF_GROUPS
            )
        });
        let limit = self.limit(queue)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut messages = self.rows(&SQL, params![queue, self.now, limit, most], StoredMessage::read)?;
        for stored in &mut messages {
            self.fetch_with_lapse(queue, stored)?;
        }
        Ok(messages)
    }

    /// Like [`Transaction::fetch`], but a lapsed lease that is not recorded yet is shown as an attempt too.
    fn fetch_with_lapse(&mut self, queue: i64, stored: &mut StoredMessage) -> OperationResult<()> {
        self.fetch(queue, stored)?;
        if stored.lease == 0 {
            return Ok(());
        }
        let lapse: Option<(Option<i64>, i64, Option<String>)> = self.row(
            "SELECT began, due, holder FROM message WHERE number = ?1 AND state = 2 AND due <= ?2",
            params![stored.number, self.now],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )?;
        if let Some((began, due, holder)) = lapse {
            let began = began.unwrap_or(self.wall);
            let attempt = Attempt {
                delivery: stored.deliveries,
                began_at: wall_time(began),
                took: time(self.wall - (self.now - due) - began),
                holder: holder.unwrap_or_default(),
                end: AttemptEnd::Lapse,
                error: None,
            };
            remember_attempt(&mut stored.attempts, attempt);
        }
        Ok(())
    }

    pub(super) fn dead_letters(&mut self, queue: i64, most: usize) -> OperationResult<Vec<StoredDeadLetter>> {
        static SQL: LazyLock<[String; 2]> = LazyLock::new(|| {
            let columns = StoredMessage::COLUMNS;
            [
                format!(
                    "SELECT {columns}, reason, died FROM message WHERE queue = ?1 AND grave IS NOT NULL
                     ORDER BY grave LIMIT ?2"
                ),
                // In the order in which the messages will die.
                format!(
                    "SELECT {columns}, deliveries >= ?3, CASE WHEN deliveries >= ?3 THEN due ELSE max(due, expires) END AS ended
                     FROM message
                     WHERE queue = ?1 AND {EXHAUSTED}
                     UNION ALL SELECT {columns}, 0, expires FROM message WHERE queue = ?1 AND {EXPIRED}
                     ORDER BY ended, number LIMIT ?4"
                ),
            ]
        });
        let (limit, wall) = (self.limit(queue)?, self.wall);
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut letters = self.rows(&SQL[0], params![queue, most], |row| {
            let reason = read_reason(row.get(StoredMessage::WIDTH)?);
            Ok(StoredDeadLetter {
                stored: StoredMessage::read(row)?,
                reason,
                died: row.get(StoredMessage::WIDTH + 1)?,
            })
        })?;
        let left = most - letters.len() as i64;
        letters.extend(self.rows(&SQL[1], params![queue, self.now, limit, left], |row| {
            let is_exhausted: bool = row.get(StoredMessage::WIDTH)?;
            let reason = if is_exhausted { DeadReason::Deliveries } else { DeadReason::Expired };
            Ok(StoredDeadLetter { stored: StoredMessage::read(row)?, reason, died: wall })
        })?);
        for letter in &mut letters {
            self.fetch_with_lapse(queue, &mut letter.stored)?;
        }
        Ok(letters)
    }

    /// Finds a message by its id. Dead letters are found by an index. A live message is found by a scan.
    pub(super) fn find(
        &mut self,
        queue: i64,
        id: MessageId,
    ) -> OperationResult<Option<(StoredMessage, MessageState)>> {
        static SQL: LazyLock<[String; 2]> = LazyLock::new(|| {
            let columns = StoredMessage::COLUMNS;
            let select = format!(
                "SELECT {columns}, state, due <= ?2, expires <= ?2, holder, reason, state = -1 AND number NOT IN ({})
                 FROM message WHERE id = ?4 AND queue = ?1",
                format_args!("SELECT number FROM ({}) WHERE number IS NOT NULL", *NEXT_OF_GROUPS)
            );
            [format!("{select} AND grave IS NOT NULL"), select]
        });
        let limit = self.limit(queue)?;
        let read = |row: &Row<'_>| {
            let stored = StoredMessage::read(row)?;
            let column = |index: usize| StoredMessage::WIDTH + index;
            let (is_due, is_too_old): (Option<bool>, Option<bool>) =
                (row.get(column(1))?, row.get(column(2))?);
            let is_due = is_due == Some(true);
            let is_behind: bool = row.get(column(5))?;
            let stored_state = row.get(column(0))?;
            let deliveries = if stored_state == LEASED { stored.deliveries } else { 0 };
            let time_to_live = if is_too_old == Some(true) { TimeToLive::Over } else { TimeToLive::Left };
            let state = match stored_state {
                DEAD => MessageState::Dead { reason: read_reason(row.get(column(4))?) },
                LEASED if !is_due => {
                    MessageState::InFlight { holder: row.get::<_, Option<_>>(column(3))?.unwrap_or_default() }
                }
                state => match given_up(deliveries, limit, time_to_live) {
                    Some(reason) => MessageState::Dead { reason },
                    None if is_behind || (state == DELAYED && !is_due) => MessageState::Delayed,
                    None => MessageState::Visible,
                },
            };
            Ok((stored, state))
        };
        for sql in &*SQL {
            let mut statement = self.sql(sql)?;
            let found =
                statement.query_row(params![queue, self.now, limit, id.0.as_bytes()], read).optional()?;
            drop(statement);
            if let Some((mut stored, state)) = found {
                self.fetch_with_lapse(queue, &mut stored)?;
                return Ok(Some((stored, state)));
            }
        }
        Ok(None)
    }
}
