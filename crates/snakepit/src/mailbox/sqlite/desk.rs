//! Each operation as SQL, inside of a transaction that somebody else begins and commits.

mod attempts;
mod flow;
mod graves;
mod looking;
mod replies;
mod settings;

pub(super) use flow::{HeldBack, may_receive};
pub(super) use settings::register;

use std::sync::LazyLock;
use std::time::Duration;

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::clock::{Micros, micros};
use super::failpoint::{Step, reach};
use super::failure::Failure;
use super::open::Gates;
use super::order::{Answer, Ask, Lease, Received, Stored, expired};
use super::schema::state::{BEHIND, DELAYED, LEASED, READY};
use super::upkeep::pages;
use crate::mailbox::attempt::this_process;
use crate::mailbox::{AttemptEnd, DeadReason, Extension, MessageId, Nack, QueueSettings, Receive, Send};

/// A body longer than this is kept apart, so that a lease does not write it again.
pub(super) const LARGE: usize = 1024;

type Outcome<T> = Result<T, Failure>;

/// One transaction: all that is done in it happens at one moment.
pub(super) struct Desk<'a> {
    connection: &'a Connection,
    now: Micros,
    wall: Micros,
    ids: &'a mut dyn FnMut() -> MessageId,
    gates: &'a Gates,
    /// Kept for all sends of the transaction: looking it up would take as long as a part of the send.
    insert: Option<CachedStatement<'a>>,
    /// Queues in which everything that was due has been done.
    settled: Vec<i64>,
    /// The settings of those queues that were asked for.
    settings: Vec<(i64, QueueSettings)>,
    /// Queues in which there may be something to receive, or something is due earlier than was thought.
    pub(super) stirred: Vec<i64>,
    /// What others should hear of, when it is committed.
    pub(super) news: Vec<(i64, News)>,
}

/// Something that happened in a queue.
#[derive(Debug)]
pub(super) enum News {
    Sent,
    Lapsed(MessageId, u32),
    Died(MessageId, DeadReason, u32),
}

/// The queue of an order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) queue: i64,
}

impl<'a> Desk<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        now: Micros,
        wall: Micros,
        ids: &'a mut dyn FnMut() -> MessageId,
        gates: &'a Gates,
    ) -> Self {
        Self {
            connection,
            now,
            wall,
            ids,
            gates,
            insert: None,
            settled: Vec::new(),
            settings: Vec::new(),
            stirred: Vec::new(),
            news: Vec::new(),
        }
    }

    pub(super) fn stir(&mut self, queue: i64) {
        if !self.stirred.contains(&queue) {
            self.stirred.push(queue);
        }
    }

    fn sql(&self, sql: &str) -> rusqlite::Result<CachedStatement<'a>> {
        self.connection.prepare_cached(sql)
    }

    fn run(&self, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<usize> {
        let changed = self.sql(sql)?.execute(params)?;
        reach(Step::Statement);
        Ok(changed)
    }

    /// Does one order, whole or not at all.
    pub(super) fn serve(&mut self, at: Place, ask: &Ask) -> Outcome<Answer> {
        if !ask.has_steps() {
            return self.dispatch(at, ask);
        }
        self.sql("SAVEPOINT one")?.execute([])?;
        let news = self.news.len();
        let outcome = self.dispatch(at, ask);
        if outcome.is_err() {
            self.news.truncate(news);
            self.sql("ROLLBACK TO one")?.execute([])?;
            self.settled.clear();
            self.settings.clear();
        }
        self.sql("RELEASE one")?.execute([])?;
        outcome
    }

    fn dispatch(&mut self, at: Place, ask: &Ask) -> Outcome<Answer> {
        Ok(match ask {
            Ask::Send(body, options) => Answer::Id(self.send(at.queue, body, options)?),
            Ask::SendAll(messages) => Answer::Ids(
                messages
                    .iter()
                    .map(|(body, options)| self.send(at.queue, body, options))
                    .collect::<Outcome<_>>()?,
            ),
            Ask::Receive(options) => Answer::Received(self.receive(at, options)?),
            Ask::Ack(lease) => self.one(lease, |desk, lease| desk.ack(at, lease))?,
            Ask::AckAll(leases) => self.several(leases, |desk, lease| desk.ack(at, lease))?,
            Ask::Nack(lease, options) => self.one(lease, |desk, lease| desk.nack(at, lease, options))?,
            Ask::NackAll(leases, options) => {
                self.several(leases, |desk, lease| desk.nack(at, lease, options))?
            }
            Ask::Extend(lease, time, extension) => {
                self.one(lease, |desk, lease| desk.extend(at, lease, *time, *extension))?
            }
            Ask::Bury(lease, reason) => self.one(lease, |desk, lease| desk.bury(at, lease, reason))?,
            Ask::Reply(lease, body, options) => Answer::Id(self.reply(at, *lease, body, options)?),
            Ask::Result(request, _) => Answer::Reply(self.result(at, *request)?),
            Ask::Settings => Answer::Settings(self.settings(at.queue)?),
            Ask::Configure(change) => Answer::Settings(self.configure(at, change)?),
            Ask::Find(id) => Answer::Found(self.find(at, *id)?),
            Ask::Peek(most) => Answer::Messages(self.peek(at, *most)?),
            Ask::Count => Answer::Count(self.count(at)?),
            Ask::Purge => Answer::Number(self.purge(at)?),
            Ask::DeadLetters(most) => Answer::Letters(self.dead_letters(at, *most)?),
            Ask::Redrive(ids) => Answer::Number(self.redrive(at, ids.as_deref())?),
            Ask::PurgeDeadLetters => Answer::Number(self.purge_dead_letters(at)?),
            Ask::Release(leases) => self.several(leases, |desk, lease| desk.release(at, lease))?,
            Ask::Size => Answer::Size(pages(self.connection)?),
            Ask::Health => Answer::Done,
        })
    }

    fn one(&mut self, lease: &Lease, deed: impl Fn(&mut Self, Lease) -> Outcome<bool>) -> Outcome<Answer> {
        if deed(self, *lease)? { Ok(Answer::Done) } else { Ok(expired()?) }
    }

    fn several(
        &mut self,
        leases: &[Lease],
        deed: impl Fn(&mut Self, Lease) -> Outcome<bool>,
    ) -> Outcome<Answer> {
        let mut done = 0;
        for lease in leases {
            done += u64::from(deed(self, *lease)?);
        }
        Ok(Answer::Number(done))
    }

    fn send(&mut self, queue: i64, body: &[u8], options: &Send) -> Outcome<MessageId> {
        if let Some(key) = &options.dedup_key
            && let Some(id) = self.known(queue, key)?
        {
            return Ok(id);
        }
        let id = (self.ids)();
        let large = if body.len() > LARGE {
            self.run("INSERT INTO large (body) VALUES (?1)", [body])?;
            Some(self.connection.last_insert_rowid())
        } else {
            None
        };
        let is_late = !options.delay.is_zero();
        let delay = micros(options.delay);
        let state = match &options.group {
            Some(group) if self.has_first(queue, group)? => BEHIND,
            _ if is_late => DELAYED,
            _ => READY,
        };
        let lifetime = options.time_to_live.map(micros);
        let attributes = (!options.attributes.is_empty())
            .then(|| serde_json::to_string(&options.attributes).unwrap_or_default());
        let insert = "INSERT INTO message (queue, state, due, due_wall, expires, expires_wall, lifetime, lease, deliveries, priority,
                 sent, id, reply_to, trace, attributes, large, body, in_reply_to, keep_result, group_key)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";
        let mut statement = match self.insert.take() {
            Some(statement) => statement,
            None => self.sql(insert)?,
        };
        statement.execute(params![
            queue,
            state,
            is_late.then(|| self.now.saturating_add(delay)),
            is_late.then(|| self.wall.saturating_add(delay)),
            lifetime.map(|time| self.now.saturating_add(time)),
            lifetime.map(|time| self.wall.saturating_add(time)),
            lifetime,
            options.priority,
            self.wall,
            id.0.as_bytes(),
            options.reply_to,
            options.trace,
            attributes,
            large,
            large.is_none().then_some(body),
            options.in_reply_to.map(|id| id.0.into_bytes()),
            options.keep_result.map(micros),
            options.group,
        ])?;
        self.insert = Some(statement);
        reach(Step::Statement);
        if let Some(key) = &options.dedup_key {
            let window = micros(options.dedup_window());
            self.run(
                "INSERT OR REPLACE INTO dedup (queue, key, id, until, until_wall, lasts) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![queue, key, id.0.as_bytes(), self.now + window, self.wall + window, window],
            )?;
        }
        self.stir(queue);
        self.news.push((queue, News::Sent));
        Ok(id)
    }

    /// The message that was sent with this key not long ago.
    fn known(&self, queue: i64, key: &str) -> Outcome<Option<MessageId>> {
        // A few at a time: whoever sends does not pay for all that was forgotten at once.
        self.run(
            "DELETE FROM dedup WHERE (queue, key) IN (SELECT queue, key FROM dedup WHERE until <= ?1 LIMIT 100)",
            [self.now],
        )?;
        let found = self
            .sql("SELECT id FROM dedup WHERE queue = ?1 AND key = ?2 AND until > ?3")?
            .query_row(params![queue, key, self.now], |row| row.get(0))
            .optional()?;
        Ok(found.map(|id| MessageId(uuid::Uuid::from_bytes(id))))
    }

    fn numbers(&self, sql: &str, params: impl rusqlite::Params) -> Outcome<Vec<i64>> {
        let mut statement = self.sql(sql)?;
        let numbers = statement.query_map(params, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        Ok(numbers)
    }

    pub(super) fn receive(&mut self, at: Place, options: &Receive) -> Outcome<Received> {
        self.settle(at)?;
        let (mut messages, next) = self.takeable(at.queue, options.max_messages)?;
        if messages.is_empty() {
            return Ok(Received::new(messages, next));
        }
        let is_over_at_once = options.visibility_timeout.is_zero();
        let due = self.now.saturating_add(micros(options.visibility_timeout));
        let holder = this_process();
        for stored in &mut messages {
            stored.lease += 1;
            stored.deliveries += 1;
            self.run(
                "UPDATE message SET state = ?1, due = ?2, lease = ?3, deliveries = ?4, began = ?5, holder = ?6
                 WHERE number = ?7",
                params![LEASED, due, stored.lease, stored.deliveries, self.wall, holder, stored.number],
            )?;
        }
        self.spend(at.queue, &messages)?;
        if is_over_at_once {
            self.settled.clear();
            self.stir(at.queue);
        }
        Ok(Received::new(messages, None))
    }

    fn ready(&mut self, queue: i64, most: usize) -> Outcome<Vec<Stored>> {
        static SQL: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT {} FROM message WHERE queue = ?1 AND state = 0 ORDER BY priority DESC, number LIMIT ?2",
                Stored::COLUMNS
            )
        });
        self.stored(queue, &SQL, params![queue, most as i64])
    }

    fn stored(&mut self, queue: i64, sql: &str, params: impl rusqlite::Params) -> Outcome<Vec<Stored>> {
        let mut statement = self.sql(sql)?;
        let mut found: Vec<Stored> =
            statement.query_map(params, Stored::read)?.collect::<rusqlite::Result<_>>()?;
        for stored in &mut found {
            self.fetch(queue, stored)?;
        }
        Ok(found)
    }

    /// What a message has elsewhere: a large body, its attempts, and what its queue says.
    fn fetch(&mut self, queue: i64, stored: &mut Stored) -> Outcome<()> {
        if let Some(large) = stored.large {
            stored.body =
                self.sql("SELECT body FROM large WHERE number = ?1")?.query_row([large], |row| row.get(0))?;
        }
        // Whoever was never leased has none.
        if stored.lease > 0 {
            stored.attempts = self.attempts(stored.number)?;
        }
        stored.limit = self.limit(queue)?;
        Ok(())
    }

    /// When something comes back by itself.
    pub(super) fn next(&self, queue: i64) -> Outcome<Option<Micros>> {
        let next = self
            .sql("SELECT min(due) FROM message WHERE queue = ?1 AND due IS NOT NULL")?
            .query_row([queue], |row| row.get(0))?;
        Ok(next)
    }

    fn ack(&mut self, at: Place, Lease { message, lease }: Lease) -> Outcome<bool> {
        let gone: Option<(Option<i64>, Option<String>)> = self
            .sql(
                "DELETE FROM message WHERE number = ?1 AND lease = ?2 AND state = 2 AND due > ?3 AND queue = ?4
                 RETURNING large, group_key",
            )?
            .query_row(params![message, lease, self.now, at.queue], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        reach(Step::Statement);
        if let Some((Some(large), _)) = &gone {
            self.run("DELETE FROM large WHERE number = ?1", [large])?;
        }
        if let Some((_, Some(group))) = &gone {
            self.promote(at.queue, group)?;
        }
        // Its first lease has no earlier one.
        if gone.is_some() && lease > 1 {
            self.run("DELETE FROM attempt WHERE message = ?1", [message])?;
        }
        Ok(gone.is_some())
    }

    /// How often the message that this is the right to was delivered; None if it is none now.
    fn leased(&self, at: Place, Lease { message, lease }: Lease) -> Outcome<Option<u32>> {
        let deliveries = self
            .sql(
                "SELECT deliveries FROM message WHERE number = ?1 AND lease = ?2 AND state = 2 AND due > ?3 AND queue = ?4",
            )?
            .query_row(params![message, lease, self.now, at.queue], |row| row.get(0))
            .optional()?;
        Ok(deliveries)
    }

    fn nack(&mut self, at: Place, lease: Lease, options: &Nack) -> Outcome<bool> {
        let Some(deliveries) = self.leased(at, lease)? else { return Ok(false) };
        self.note_attempt(lease.message, AttemptEnd::Nack, options.error.as_deref())?;
        let (limit, pause) = (self.limit(at.queue)?, options.visibility);
        let is_too_old = self
            .sql("SELECT 1 FROM message WHERE number = ?1 AND expires <= ?2")?
            .exists(params![lease.message, self.now])?;
        if deliveries >= limit || is_too_old {
            self.settle(at)?;
            let reason = if deliveries >= limit { DeadReason::Deliveries } else { DeadReason::Expired };
            self.die(at.queue, lease.message, &reason)?;
            return Ok(true);
        }
        let is_late = !pause.is_zero();
        self.run(
            "UPDATE message SET state = ?1, due = ?2, due_wall = ?3 WHERE number = ?4",
            params![
                if is_late { DELAYED } else { READY },
                is_late.then(|| self.now.saturating_add(micros(pause))),
                is_late.then(|| self.wall.saturating_add(micros(pause))),
                lease.message,
            ],
        )?;
        self.stir(at.queue);
        Ok(true)
    }

    /// The delivery was none; but the number of the lease is used.
    fn release(&mut self, at: Place, lease: Lease) -> Outcome<bool> {
        let Some(deliveries) = self.leased(at, lease)? else { return Ok(false) };
        let deliveries = deliveries.saturating_sub(1);
        self.run(
            "UPDATE message SET state = 0, due = NULL, deliveries = ?1 WHERE number = ?2",
            params![deliveries, lease.message],
        )?;
        // The limit was lowered while it was held.
        if deliveries >= self.limit(at.queue)? {
            self.settle(at)?;
            self.die(at.queue, lease.message, &DeadReason::Deliveries)?;
        }
        self.settled.clear();
        self.stir(at.queue);
        Ok(true)
    }

    fn extend(&mut self, at: Place, lease: Lease, time: Duration, extension: Extension) -> Outcome<bool> {
        if self.leased(at, lease)?.is_none() {
            return Ok(false);
        }
        let due = self.now.saturating_add(micros(time));
        match extension {
            Extension::AtLeast => {
                self.run("UPDATE message SET due = max(due, ?1) WHERE number = ?2", [due, lease.message])?;
            }
            Extension::Exactly => {
                self.run("UPDATE message SET due = ?1 WHERE number = ?2", [due, lease.message])?;
                // It may come back earlier than those who wait believe.
                self.settled.clear();
                self.stir(at.queue);
            }
        }
        Ok(true)
    }

    fn purge(&mut self, at: Place) -> Outcome<u64> {
        // What was dead already stays.
        self.settle(at)?;
        self.run(
            "DELETE FROM large WHERE number IN
                 (SELECT large FROM message WHERE queue = ?1 AND grave IS NULL AND large IS NOT NULL)",
            [at.queue],
        )?;
        self.run(
            "DELETE FROM attempt WHERE message IN
                 (SELECT number FROM message WHERE queue = ?1 AND grave IS NULL AND lease > 1)",
            [at.queue],
        )?;
        Ok(self.run("DELETE FROM message WHERE queue = ?1 AND grave IS NULL", [at.queue])? as u64)
    }
}
