//! What is in a queue, for those who only look. What is due is shown as it will be found, and left as it is: whoever receives
//! next settles it.

use std::sync::LazyLock;

use rusqlite::{OptionalExtension, params};

use super::{Desk, Outcome, Place};
use crate::mailbox::attempt::remember;
use crate::mailbox::sqlite::clock::{time, wall_time};
use crate::mailbox::sqlite::order::{Grave, Stored};
use crate::mailbox::sqlite::schema::state::{BEHIND, DEAD, DELAYED, LEASED, READY};
use crate::mailbox::{Attempt, AttemptEnd, Count, DeadReason, MessageId, Place as Location};

/// Has died of old age, though nobody has moved it yet; `?2` is now.
const EXPIRED: &str = "state < 2 AND expires <= ?2";
/// Its last delivery has lapsed, or it is too old to come back; `?3` is the limit.
const EXHAUSTED: &str = "state = 2 AND due <= ?2 AND (deliveries >= ?3 OR expires <= ?2)";
/// Is back, though nobody has moved it yet.
const BACK: &str =
    "due <= ?2 AND (state = 1 OR (state = 2 AND deliveries < ?3)) AND (expires IS NULL OR expires > ?2)";

impl Desk<'_> {
    fn number(&mut self, at: Place, sql: &str) -> Outcome<u64> {
        let limit = self.limit(at.queue)?;
        let mut statement = self.sql(sql)?;
        let number: i64 = match statement.parameter_count() {
            1 => statement.query_row([at.queue], |row| row.get(0))?,
            2 => statement.query_row(params![at.queue, self.now], |row| row.get(0))?,
            _ => statement.query_row(params![at.queue, self.now, limit], |row| row.get(0))?,
        };
        Ok(number as u64)
    }

    /// How many are in a state, due or not.
    fn tally(&self, at: Place, state: i64) -> Outcome<u64> {
        let mut statement = self.sql("SELECT messages FROM tally WHERE queue = ?1 AND state = ?2")?;
        let number: Option<i64> = statement.query_row([at.queue, state], |row| row.get(0)).optional()?;
        Ok(number.unwrap_or(0) as u64)
    }

    /// Takes as long as there is something due that nobody has moved yet, however many messages there are.
    pub(super) fn count(&mut self, at: Place) -> Outcome<Count> {
        static SQL: LazyLock<[String; 8]> = LazyLock::new(|| {
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
            ]
        });
        let [too_old, back, lapsed, over, expired_delays, expired_behind, expired, exhausted] = &*SQL;
        let without = |all: u64, less: u64| all.saturating_sub(less);
        let (delayed, behind) = (self.tally(at, DELAYED)?, self.tally(at, BEHIND)?);
        let not_delayed =
            self.number(at, over)? + self.number(at, expired_delays)? + self.number(at, expired_behind)?;
        Ok(Count {
            visible: without(self.tally(at, READY)?, self.number(at, too_old)?) + self.number(at, back)?,
            in_flight: without(self.tally(at, LEASED)?, self.number(at, lapsed)?),
            delayed: without(delayed + behind, not_delayed),
            dead: self.tally(at, DEAD)? + self.number(at, expired)? + self.number(at, exhausted)?,
        })
    }

    pub(super) fn peek(&mut self, at: Place, most: usize) -> Outcome<Vec<Stored>> {
        static SQL: LazyLock<String> = LazyLock::new(|| {
            let columns = Stored::COLUMNS;
            format!(
                "SELECT * FROM (
                     SELECT * FROM (
                         SELECT {columns} FROM message WHERE queue = ?1 AND state = 0 AND (expires IS NULL OR expires > ?2)
                         ORDER BY priority DESC, number LIMIT ?4)
                     UNION ALL SELECT {columns} FROM message WHERE queue = ?1 AND {BACK})
                 ORDER BY priority DESC, number LIMIT ?4"
            )
        });
        let (now, limit) = (self.now, self.limit(at.queue)?);
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut seen = self.stored(at.queue, &SQL, params![at.queue, now, limit, most])?;
        for stored in &mut seen {
            self.add_lapse(stored)?;
        }
        Ok(seen)
    }

    /// A lease that has lapsed is an attempt, though nobody has noted it yet.
    fn add_lapse(&self, stored: &mut Stored) -> Outcome<()> {
        if stored.lease == 0 {
            return Ok(());
        }
        let lapse = self
            .sql("SELECT began, due, holder FROM message WHERE number = ?1 AND state = 2 AND due <= ?2")?
            .query_row(params![stored.number, self.now], |row| {
                Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, i64>(1)?, row.get::<_, Option<String>>(2)?))
            })
            .optional()?;
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
            remember(&mut stored.attempts, attempt);
        }
        Ok(())
    }

    pub(super) fn dead_letters(&mut self, at: Place, most: usize) -> Outcome<Vec<Grave>> {
        static SQL: LazyLock<[String; 2]> = LazyLock::new(|| {
            let columns = Stored::COLUMNS;
            [
                format!(
                    "SELECT {columns}, reason, died FROM message WHERE queue = ?1 AND grave IS NOT NULL
                     ORDER BY grave LIMIT ?2"
                ),
                // In the order in which they will be moved.
                format!(
                    "SELECT {columns}, deliveries >= ?3, CASE WHEN deliveries >= ?3 THEN due ELSE max(due, expires) END AS ended
                     FROM message
                     WHERE queue = ?1 AND {EXHAUSTED}
                     UNION ALL SELECT {columns}, 0, expires FROM message WHERE queue = ?1 AND {EXPIRED}
                     ORDER BY ended, number LIMIT ?4"
                ),
            ]
        });
        let (limit, wall) = (self.limit(at.queue)?, self.wall);
        let read = |row: &rusqlite::Row<'_>| {
            let reason: String = row.get(Stored::WIDTH)?;
            let reason = serde_json::from_str(&reason).unwrap_or(DeadReason::Failed { error: reason });
            Ok(Grave { stored: Stored::read(row)?, reason, died: row.get(Stored::WIDTH + 1)? })
        };
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut graves: Vec<Grave> =
            self.sql(&SQL[0])?.query_map(params![at.queue, most], read)?.collect::<rusqlite::Result<_>>()?;
        let read = |row: &rusqlite::Row<'_>| {
            let is_exhausted: bool = row.get(Stored::WIDTH)?;
            let reason = if is_exhausted { DeadReason::Deliveries } else { DeadReason::Expired };
            Ok(Grave { stored: Stored::read(row)?, reason, died: wall })
        };
        let left = most - graves.len() as i64;
        let mut statement = self.sql(&SQL[1])?;
        let dying = statement.query_map(params![at.queue, self.now, limit, left], read)?;
        graves.extend(dying.collect::<rusqlite::Result<Vec<Grave>>>()?);
        for grave in &mut graves {
            self.fetch(at.queue, &mut grave.stored)?;
            self.add_lapse(&mut grave.stored)?;
        }
        Ok(graves)
    }

    /// Searches for a message that is alive; the dead have an index.
    pub(super) fn find(&mut self, at: Place, id: MessageId) -> Outcome<Option<(Stored, Location)>> {
        static SQL: LazyLock<[String; 2]> = LazyLock::new(|| {
            let columns = Stored::COLUMNS;
            let select = format!("SELECT {columns}, state, due, expires, holder, reason FROM message");
            [
                format!("{select} WHERE id = ?1 AND grave IS NOT NULL AND queue = ?2"),
                format!("{select} WHERE id = ?1 AND queue = ?2"),
            ]
        });
        let (now, limit) = (self.now, self.limit(at.queue)?);
        for sql in &*SQL {
            let read = |row: &rusqlite::Row<'_>| {
                let stored = Stored::read(row)?;
                let at = |place: usize| Stored::WIDTH + place;
                let (state, due, expires): (i64, Option<i64>, Option<i64>) =
                    (row.get(at(0))?, row.get(at(1))?, row.get(at(2))?);
                let (holder, reason): (Option<String>, Option<String>) = (row.get(at(3))?, row.get(at(4))?);
                let is_over = due.is_some_and(|due| due <= now);
                let is_too_old = expires.is_some_and(|at| at <= now);
                let dead = |reason| Location::Dead { reason };
                let place = match state {
                    DEAD => dead(
                        reason
                            .and_then(|text| serde_json::from_str(&text).ok())
                            .unwrap_or(DeadReason::Failed { error: String::new() }),
                    ),
                    LEASED if !is_over => Location::InFlight { holder: holder.unwrap_or_default() },
                    LEASED if stored.deliveries >= limit => dead(DeadReason::Deliveries),
                    _ if is_too_old => dead(DeadReason::Expired),
                    BEHIND => Location::Delayed,
                    DELAYED if !is_over => Location::Delayed,
                    _ => Location::Visible,
                };
                Ok((stored, place))
            };
            let found = self.sql(sql)?.query_row(params![id.0.as_bytes(), at.queue], read).optional()?;
            if let Some((mut stored, place)) = found {
                self.fetch(at.queue, &mut stored)?;
                self.add_lapse(&mut stored)?;
                return Ok(Some((stored, place)));
            }
        }
        Ok(None)
    }
}
