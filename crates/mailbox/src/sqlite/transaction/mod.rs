//! Each operation as SQL, inside of a transaction that the writer begins and commits.
//!
//! Owns all statements that read or change messages. Must not know callers, threads or other processes.
//!
//! This file sends, delivers and ends leases. `rate_limits` says what may be delivered, `dead_letters` gives messages up,
//! `attempts` records what happened to them, `replies` answers them, `inspection` shows them, and `queues` has queues and
//! their settings.

mod attempts;
mod dead_letters;
mod inspection;
mod queues;
mod rate_limits;
mod replies;

pub(crate) use queues::{queue_number, register};
pub(crate) use rate_limits::throttle_of;

use std::sync::LazyLock;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, params};

use super::error::OperationError;
use super::operation::{LeaseKey, Operation, OperationOutput};
use super::storage::maintenance::size;
use super::storage::schema::state::{BEHIND, DELAYED, LEASED, READY};
use super::stored_message::{ReceivedBatch, StoredMessage, id, write_attributes};
use super::stored_time::{Micros, micros, wall_micros, wall_time};
use super::writer::failpoint::{FaultPoint, reach};
use super::writer::handle::OpenQueues;
use crate::LeaseChange;
use crate::backend::MessageIds;
use crate::backend::{TimeToLive, given_up, this_process};
use crate::clock::Clock;
use crate::telemetry::MessageEvent;
use crate::{AttemptEnd, LeaseExtension, MessageId, QueueSettings, ReceiveOptions, SendOptions};
use std::time::Duration;

/// A body longer than this is stored apart, so that a lease does not write it again.
pub(crate) const LARGE: usize = 1024;

type OperationResult<T> = Result<T, OperationError>;

/// One transaction: everything in it happens at one moment.
pub(crate) struct Transaction<'a> {
    connection: &'a Connection,
    now: Micros,
    wall: Micros,
    ids: &'a mut MessageIds,
    open_queues: &'a OpenQueues,
    /// Kept for all sends of the transaction: looking it up would take as long as a part of the send.
    insert: Option<CachedStatement<'a>>,
    /// Queues in which everything that was due has been done.
    settled: Vec<i64>,
    /// The settings that were read.
    settings: Vec<(i64, QueueSettings)>,
    /// Queues in which a message may be visible, or is due earlier than receivers believe.
    pub(crate) stirred: Vec<i64>,
    /// To be reported after the commit.
    pub(crate) events: Vec<(i64, TransactionEvent)>,
}

#[derive(Debug)]
pub(crate) enum TransactionEvent {
    Sent,
    Message(MessageEvent),
}

impl<'a> Transaction<'a> {
    /// Reads the time, so the transaction must have begun: under its lock, time never goes back from one transaction to the next,
    /// whichever process makes it.
    pub(crate) fn new(
        connection: &'a Connection,
        clock: &dyn Clock,
        ids: &'a mut MessageIds,
        open_queues: &'a OpenQueues,
    ) -> Self {
        Self {
            connection,
            now: micros(clock.since_boot()),
            wall: wall_micros(clock),
            ids,
            open_queues,
            insert: None,
            settled: Vec::new(),
            settings: Vec::new(),
            stirred: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Micros {
        self.now
    }

    fn next_id(&mut self) -> MessageId {
        self.ids.next(wall_time(self.wall))
    }

    fn stir(&mut self, queue: i64) {
        if !self.stirred.contains(&queue) {
            self.stirred.push(queue);
        }
    }

    fn sql(&self, sql: &str) -> rusqlite::Result<CachedStatement<'a>> {
        self.connection.prepare_cached(sql)
    }

    fn run(&self, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
        let changed = self.sql(sql)?.execute(params)?;
        reach(FaultPoint::Statement);
        Ok(changed)
    }

    fn rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        self.sql(sql)?.query_map(params, read)?.collect()
    }

    fn row<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.sql(sql)?.query_row(params, read).optional()
    }

    /// Does one operation, whole or not at all.
    pub(crate) fn serve(&mut self, queue: i64, operation: &Operation) -> OperationResult<OperationOutput> {
        if !operation.has_steps() {
            return self.dispatch(queue, operation);
        }
        self.sql("SAVEPOINT one")?.execute([])?;
        let events = self.events.len();
        let outcome = self.dispatch(queue, operation);
        if outcome.is_err() {
            self.events.truncate(events);
            self.sql("ROLLBACK TO one")?.execute([])?;
            self.settled.clear();
            self.settings.clear();
        }
        self.sql("RELEASE one")?.execute([])?;
        outcome
    }

    fn dispatch(&mut self, queue: i64, operation: &Operation) -> OperationResult<OperationOutput> {
        Ok(match operation {
            Operation::Send(body, options) => OperationOutput::Id(self.send(queue, body, options)?),
            Operation::SendAll(messages) => {
                let ids = messages.iter().map(|(body, options)| self.send(queue, body, options));
                OperationOutput::Ids(ids.collect::<OperationResult<_>>()?)
            }
            Operation::Receive(options) => OperationOutput::Received(self.receive(queue, options)?),
            Operation::ChangeLeases(leases, change) => {
                let mut changed = 0;
                for lease in leases {
                    changed += u64::from(self.change_lease(queue, *lease, change)?);
                }
                OperationOutput::Number(changed)
            }
            Operation::Reply(lease, body, options) => {
                OperationOutput::Id(self.reply(queue, *lease, body, options)?)
            }
            Operation::Result(request, _) => OperationOutput::Reply(self.result(queue, *request)?),
            Operation::Settings => OperationOutput::Settings(self.settings(queue)?),
            Operation::Configure(change) => OperationOutput::Settings(self.configure(queue, change)?),
            Operation::Find(id) => OperationOutput::Found(self.find(queue, *id)?),
            Operation::Peek(most) => OperationOutput::Messages(self.peek(queue, *most)?),
            Operation::Count => OperationOutput::Count(self.count(queue)?),
            Operation::Purge => OperationOutput::Number(self.purge(queue, "grave IS NULL")?),
            Operation::DeadLetters(most) => OperationOutput::DeadLetters(self.dead_letters(queue, *most)?),
            Operation::Redrive(ids) => OperationOutput::Number(self.redrive(queue, ids.as_deref())?),
            Operation::PurgeDeadLetters => OperationOutput::Number(self.purge(queue, "grave IS NOT NULL")?),
            Operation::Size => OperationOutput::Size(size(self.connection)?),
            Operation::Health => OperationOutput::Done,
        })
    }

    fn send(&mut self, queue: i64, body: &[u8], options: &SendOptions) -> OperationResult<MessageId> {
        if let Some(key) = &options.dedup_key
            && let Some(id) = self.known(queue, key)?
        {
            return Ok(id);
        }
        let id = self.next_id();
        let large = if body.len() > LARGE {
            self.run("INSERT INTO large (body) VALUES (?1)", [body])?;
            Some(self.connection.last_insert_rowid())
        } else {
            None
        };
        let delay = (!options.delay.is_zero()).then(|| micros(options.delay));
        let state = match &options.group {
            Some(group) if self.has_first(queue, group)? => BEHIND,
            _ if delay.is_some() => DELAYED,
            _ => READY,
        };
        let lifetime = options.time_to_live.map(micros);
        let insert = "INSERT INTO message (queue, state, due, due_wall, expires, expires_wall, lifetime, lease, deliveries, priority,
                 sent, id, reply_to, trace, attributes, large, body, in_reply_to, keep_result, group_key, rate_key)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";
        let mut statement = match self.insert.take() {
            Some(statement) => statement,
            None => self.sql(insert)?,
        };
        statement.execute(params![
            queue,
            state,
            delay.map(|time| self.now.saturating_add(time)),
            delay.map(|time| self.wall.saturating_add(time)),
            lifetime.map(|time| self.now.saturating_add(time)),
            lifetime.map(|time| self.wall.saturating_add(time)),
            lifetime,
            options.priority,
            self.wall,
            id.0.as_bytes(),
            options.reply_to,
            options.trace,
            write_attributes(&options.attributes),
            large,
            large.is_none().then_some(body),
            options.in_reply_to.map(|id| id.0.into_bytes()),
            options.keep_result.map(micros),
            options.group,
            options.rate_key,
        ])?;
        self.insert = Some(statement);
        reach(FaultPoint::Statement);
        if let Some(key) = &options.dedup_key {
            let window = micros(options.dedup_window());
            self.run(
                "INSERT OR REPLACE INTO dedup (queue, key, id, until, until_wall, lasts) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![queue, key, id.0.as_bytes(), self.now + window, self.wall + window, window],
            )?;
        }
        self.stir(queue);
        self.events.push((queue, TransactionEvent::Sent));
        Ok(id)
    }

    /// The message that was sent with this key, if the key is still remembered.
    fn known(&self, queue: i64, key: &str) -> OperationResult<Option<MessageId>> {
        // A few at a time: one send does not pay for all keys that are forgotten at once.
        self.run(
            "DELETE FROM dedup WHERE (queue, key) IN (SELECT queue, key FROM dedup WHERE until <= ?1 LIMIT 100)",
            [self.now],
        )?;
        let sql = "SELECT id FROM dedup WHERE queue = ?1 AND key = ?2 AND until > ?3";
        Ok(self.row(sql, params![queue, key, self.now], |row| row.get(0))?.map(id))
    }

    pub(crate) fn receive(&mut self, queue: i64, options: &ReceiveOptions) -> OperationResult<ReceivedBatch> {
        self.settle(queue)?;
        let (mut messages, next) = self.deliverable(queue, options.max_messages)?;
        if messages.is_empty() {
            return Ok(ReceivedBatch::new(messages, next));
        }
        let due = self.now.saturating_add(micros(options.visibility_timeout));
        let holder = this_process();
        for stored in &mut messages {
            stored.lease += 1;
            stored.deliveries += 1;
            self.run(
                "UPDATE message SET state = ?1, due = ?2, lease = ?3, deliveries = ?4, began = ?5, holder = ?6,
                     waits_for_rate = NULL
                 WHERE number = ?7",
                params![LEASED, due, stored.lease, stored.deliveries, self.wall, holder, stored.number],
            )?;
        }
        self.spend(queue, &messages)?;
        if options.visibility_timeout.is_zero() {
            // These leases are over at once.
            self.settled.clear();
            self.stir(queue);
        }
        Ok(ReceivedBatch::new(messages, None))
    }

    fn ready(&mut self, queue: i64, most: usize) -> OperationResult<Vec<StoredMessage>> {
        static SQL: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT {} FROM message WHERE queue = ?1 AND state = 0 ORDER BY priority DESC, number LIMIT ?2",
                StoredMessage::COLUMNS
            )
        });
        let mut ready = self.rows(&SQL, params![queue, most as i64], StoredMessage::read)?;
        for stored in &mut ready {
            self.fetch(queue, stored)?;
        }
        Ok(ready)
    }

    /// Reads what a message has in other tables: a large body, its attempts, and the limit of its queue.
    fn fetch(&mut self, queue: i64, stored: &mut StoredMessage) -> OperationResult<()> {
        if let Some(large) = stored.large {
            stored.body =
                self.sql("SELECT body FROM large WHERE number = ?1")?.query_row([large], |row| row.get(0))?;
        }
        // A message that was never leased has no attempts.
        if stored.lease > 0 {
            stored.attempts = self.attempts(stored.number)?;
        }
        stored.limit = self.limit(queue)?;
        Ok(())
    }

    /// Returns false if the receipt has expired.
    fn change_lease(&mut self, queue: i64, lease: LeaseKey, change: &LeaseChange) -> OperationResult<bool> {
        if *change == LeaseChange::Ack {
            return self.ack(queue, lease);
        }
        let Some(deliveries) = self.leased(queue, lease)? else { return Ok(false) };
        let number = lease.message;
        match change {
            LeaseChange::Ack => {}
            LeaseChange::Nack(options) => {
                self.record_attempt(number, AttemptEnd::Nack, options.error.as_deref())?;
                self.give_back(queue, number, deliveries, options.visibility)?;
            }
            LeaseChange::Release => {
                // The delivery does not count, but the number of the lease stays used.
                let deliveries = deliveries.saturating_sub(1);
                self.run(
                    "UPDATE message SET deliveries = ?1 WHERE number = ?2",
                    params![deliveries, number],
                )?;
                self.give_back(queue, number, deliveries, Duration::ZERO)?;
                self.settled.clear();
            }
            LeaseChange::Extend(visibility, extension) => {
                let due = self.now.saturating_add(micros(*visibility));
                match extension {
                    LeaseExtension::AtLeast => {
                        self.run("UPDATE message SET due = max(due, ?1) WHERE number = ?2", [due, number])?;
                    }
                    LeaseExtension::Exactly => {
                        self.run("UPDATE message SET due = ?1 WHERE number = ?2", [due, number])?;
                        // It may come back earlier than receivers believe.
                        self.settled.clear();
                        self.stir(queue);
                    }
                }
            }
            LeaseChange::Bury(reason) => {
                self.settle(queue)?;
                self.record_attempt(number, AttemptEnd::Bury, reason.error())?;
                self.die(queue, number, reason)?;
            }
        }
        Ok(true)
    }

    fn ack(&mut self, queue: i64, LeaseKey { message, lease }: LeaseKey) -> OperationResult<bool> {
        let gone: Option<(Option<i64>, Option<String>)> = self.row(
            "DELETE FROM message WHERE number = ?1 AND lease = ?2 AND state = 2 AND due > ?3 AND queue = ?4
             RETURNING large, group_key",
            params![message, lease, self.now, queue],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        reach(FaultPoint::Statement);
        let Some((large, group)) = gone else { return Ok(false) };
        if let Some(large) = large {
            self.run("DELETE FROM large WHERE number = ?1", [large])?;
        }
        if let Some(group) = group {
            self.promote(queue, &group)?;
        }
        // A first lease has no attempt before it.
        if lease > 1 {
            self.run("DELETE FROM attempt WHERE message = ?1", [message])?;
        }
        Ok(true)
    }

    /// How often the leased message was delivered; None if the receipt has expired.
    fn leased(&self, queue: i64, LeaseKey { message, lease }: LeaseKey) -> OperationResult<Option<u32>> {
        let sql = "SELECT deliveries FROM message WHERE number = ?1 AND lease = ?2 AND state = 2 AND due > ?3 AND queue = ?4";
        Ok(self.row(sql, params![message, lease, self.now, queue], |row| row.get(0))?)
    }

    /// Ends a lease: the message can be received again after `pause`, unless it is given up.
    fn give_back(
        &mut self,
        queue: i64,
        number: i64,
        deliveries: u32,
        pause: Duration,
    ) -> OperationResult<()> {
        let too_old = "SELECT 1 FROM message WHERE number = ?1 AND expires <= ?2";
        let is_over = self.sql(too_old)?.exists(params![number, self.now])?;
        let time_to_live = if is_over { TimeToLive::Over } else { TimeToLive::Left };
        if let Some(reason) = given_up(deliveries, self.limit(queue)?, time_to_live) {
            // Messages that died earlier come first.
            self.settle(queue)?;
            return self.die(queue, number, &reason);
        }
        let pause = (!pause.is_zero()).then(|| micros(pause));
        self.run(
            "UPDATE message SET state = ?1, due = ?2, due_wall = ?3 WHERE number = ?4",
            params![
                if pause.is_some() { DELAYED } else { READY },
                pause.map(|time| self.now.saturating_add(time)),
                pause.map(|time| self.wall.saturating_add(time)),
                number,
            ],
        )?;
        self.stir(queue);
        Ok(())
    }

    /// Removes the messages of a queue for which `which` holds.
    fn purge(&mut self, queue: i64, which: &str) -> OperationResult<u64> {
        // Messages that are dead already count as dead.
        self.settle(queue)?;
        let from = format!("FROM message WHERE queue = ?1 AND {which}");
        self.run(
            &format!("DELETE FROM large WHERE number IN (SELECT large {from} AND large IS NOT NULL)"),
            [queue],
        )?;
        self.run(
            &format!("DELETE FROM attempt WHERE message IN (SELECT number {from} AND lease > 0)"),
            [queue],
        )?;
        Ok(self.run(&format!("DELETE {from}"), [queue])? as u64)
    }
}

/// When a lease or a delay in the queue ends.
pub(crate) fn next_due(connection: &Connection, queue: i64) -> rusqlite::Result<Option<Micros>> {
    connection
        .prepare_cached("SELECT min(due) FROM message WHERE queue = ?1 AND due IS NOT NULL")?
        .query_row([queue], |row| row.get(0))
}
