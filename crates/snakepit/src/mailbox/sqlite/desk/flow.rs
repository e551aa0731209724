//! What holds messages back although they are there: a pause, a rate, and those before them in their group.
//!
//! Of each group only the first message is among those that can be received, so nobody ever searches past a group that waits.
//! A group whose rate is used up leaves them, too, until its period is over.

use rusqlite::{Connection, OptionalExtension, params};

use super::{Desk, Outcome};
use crate::mailbox::sqlite::clock::{Micros, micros};
use crate::mailbox::sqlite::order::Stored;
use crate::mailbox::sqlite::schema::state::DELAYED;
use crate::mailbox::{QueueSettings, RateLimit};

/// The key of a whole queue's rate: no group has an empty name.
const WHOLE: &str = "";
/// How often a receive looks again behind groups whose rate is used up. Each look puts off ten of them.
const LOOKS: usize = 100;

impl Desk<'_> {
    /// Whether a message of the group can be received, is delayed or leased: then others are behind it.
    pub(super) fn has_first(&self, queue: i64, group: &str) -> Outcome<bool> {
        let sql =
            "SELECT 1 FROM message WHERE queue = ?1 AND group_key = ?2 AND state BETWEEN 0 AND 2 LIMIT 1";
        Ok(self.sql(sql)?.exists(params![queue, group])?)
    }

    /// The first of a group is gone: the next one takes its place.
    pub(super) fn promote(&mut self, queue: i64, group: &str) -> Outcome<()> {
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

    /// Up to so many that may be received now. If there are none: when to look again.
    pub(super) fn takeable(&mut self, queue: i64, most: usize) -> Outcome<(Vec<Stored>, Option<Micros>)> {
        let settings = self.settings(queue)?;
        match held_back(self.connection, queue, self.now, &settings)? {
            HeldBack::No => {}
            HeldBack::Until(time) => return Ok((Vec::new(), Some(time))),
            HeldBack::ForNow => return Ok((Vec::new(), None)),
        }
        let most = match &settings.rate_limit {
            None => most,
            Some(rate) => most.min(allowance(self.connection, queue, WHOLE, rate, self.now)?.0 as usize),
        };
        let Some(rate) = settings.group_rate_limit else {
            let messages = self.ready(queue, most)?;
            let next = if messages.is_empty() { self.next(queue)? } else { None };
            return Ok((messages, next));
        };
        for _ in 0..LOOKS {
            let messages = self.ready(queue, most)?;
            if messages.is_empty() {
                return Ok((messages, self.next(queue)?));
            }
            if !self.put_off(queue, &messages, &rate)? {
                return Ok((messages, None));
            }
        }
        Ok((Vec::new(), Some(self.now)))
    }

    /// Delays those whose group has used up its rate; whether there were any.
    fn put_off(&mut self, queue: i64, messages: &[Stored], rate: &RateLimit) -> Outcome<bool> {
        let mut were_any = false;
        for message in messages {
            let Some(group) = &message.group else { continue };
            let (left, until) = allowance(self.connection, queue, group, rate, self.now)?;
            if left == 0 {
                were_any = true;
                self.run(
                    "UPDATE message SET state = ?1, due = ?2, due_wall = ?3 WHERE number = ?4",
                    params![DELAYED, until, self.wall.saturating_add(until - self.now), message.number],
                )?;
            }
        }
        Ok(were_any)
    }

    /// These are given out.
    pub(super) fn spend(&mut self, queue: i64, messages: &[Stored]) -> Outcome<()> {
        let settings = self.settings(queue)?;
        if let Some(rate) = &settings.rate_limit {
            self.spend_of(queue, WHOLE, rate, messages.len() as u32)?;
        }
        if let Some(rate) = &settings.group_rate_limit {
            for group in messages.iter().filter_map(|message| message.group.as_deref()) {
                self.spend_of(queue, group, rate, 1)?;
            }
            // A few at a time: periods that are over say nothing any more.
            let over = self.now.saturating_sub(micros(rate.per));
            self.run(
                "DELETE FROM rate WHERE (queue, group_key) IN
                     (SELECT queue, group_key FROM rate WHERE queue = ?1 AND began <= ?2 AND group_key <> '' LIMIT 20)",
                params![queue, over],
            )?;
        }
        Ok(())
    }

    fn spend_of(&self, queue: i64, key: &str, rate: &RateLimit, messages: u32) -> Outcome<()> {
        let period = period(self.connection, queue, key)?;
        let (began, used) = RateLimit::spent(period, self.now as u64, micros(rate.per) as u64, messages);
        self.run(
            "INSERT OR REPLACE INTO rate (queue, group_key, began, used) VALUES (?1, ?2, ?3, ?4)",
            params![queue, key, began as i64, used],
        )?;
        Ok(())
    }
}

fn period(connection: &Connection, queue: i64, key: &str) -> rusqlite::Result<Option<(u64, u32)>> {
    connection
        .prepare_cached("SELECT began, used FROM rate WHERE queue = ?1 AND group_key = ?2")?
        .query_row(params![queue, key], |row| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?)))
        .optional()
}

/// How many more may be given out now, and when the period ends.
fn allowance(
    connection: &Connection,
    queue: i64,
    key: &str,
    rate: &RateLimit,
    now: Micros,
) -> rusqlite::Result<(u32, Micros)> {
    let period = period(connection, queue, key)?;
    let (left, until) = rate.allowance(period, now as u64, micros(rate.per) as u64);
    Ok((left, Micros::try_from(until).unwrap_or(Micros::MAX)))
}

/// Whether nothing at all may be received from a queue now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::mailbox::sqlite) enum HeldBack {
    No,
    Until(Micros),
    /// Until somebody changes that.
    ForNow,
}

fn held_back(
    connection: &Connection,
    queue: i64,
    now: Micros,
    settings: &QueueSettings,
) -> rusqlite::Result<HeldBack> {
    if settings.paused {
        return Ok(HeldBack::ForNow);
    }
    let Some(rate) = &settings.rate_limit else { return Ok(HeldBack::No) };
    let (left, until) = allowance(connection, queue, WHOLE, rate, now)?;
    Ok(if left == 0 { HeldBack::Until(until) } else { HeldBack::No })
}

/// The same, for those who only look. Settings that cannot be read hold nothing back: whoever receives says what is wrong.
pub(in crate::mailbox::sqlite) fn may_receive(
    connection: &Connection,
    queue: i64,
    now: Micros,
) -> rusqlite::Result<HeldBack> {
    let stored: Option<String> = connection
        .prepare_cached("SELECT settings FROM queue WHERE number = ?1")?
        .query_row([queue], |row| row.get(0))?;
    match stored.and_then(|text| serde_json::from_str(&text).ok()) {
        Some(settings) => held_back(connection, queue, now, &settings),
        None => Ok(HeldBack::No),
    }
}
