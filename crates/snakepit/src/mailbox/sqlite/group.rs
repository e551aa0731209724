//! The orders of one transaction, and the receivers that wait: who is given what, and who is told.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use super::clock::Micros;
use super::desk::{Desk, HeldBack, News, Place, may_receive};
use super::failure::Failure;
use super::inbox::Order;
use super::order::{Answer, Ask};
use super::parked::{Line, Parked};
use crate::mailbox::{MailboxError, telling};

/// What is done in one transaction.
pub(super) struct Group {
    pub(super) orders: VecDeque<Order>,
    pub(super) done: Vec<(Order, Result<Answer, MailboxError>)>,
    pub(super) is_stirred: bool,
}

impl Group {
    /// Whether something may have to be written: not if all that is asked is to receive where there is nothing.
    pub(super) fn may_write(
        &self,
        connection: &Connection,
        queues: &HashMap<Arc<str>, i64>,
        now: Micros,
    ) -> rusqlite::Result<bool> {
        if self.is_stirred {
            return Ok(true);
        }
        for order in self.orders.iter().filter(|order| !order.ask.is_read()) {
            let Some(queue) = queues.get(&order.queue).filter(|_| order.is_receive()) else {
                return Ok(true);
            };
            if glance(connection, *queue, now)?.0 || has_expired(connection, *queue, now)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

pub(super) fn answer(order: Order, result: Result<Answer, MailboxError>) {
    if let Some(answer) = order.answer {
        // Whoever has gone does not want it; messages go back by themselves.
        let _ = answer.send(result);
    }
}

/// Tells those who listen what is committed.
pub(super) fn publish(queues: &HashMap<Arc<str>, i64>, news: &[(i64, News)]) {
    let mut sent: Vec<(i64, usize)> = Vec::new();
    let name = |queue: i64| queues.iter().find(|(_, number)| **number == queue).map_or("", |(name, _)| name);
    for (queue, news) in news {
        match news {
            News::Sent => match sent.iter_mut().find(|(other, _)| other == queue) {
                Some((_, messages)) => *messages += 1,
                None => sent.push((*queue, 1)),
            },
            News::Lapsed(id, delivery) => telling::lease_lapsed(name(*queue), *id, *delivery),
            News::Died(id, reason, deliveries) => {
                telling::dead_lettered(name(*queue), *id, reason, *deliveries);
            }
        }
    }
    for (queue, messages) in sent {
        telling::sent(name(queue), messages);
    }
}

/// Gives those who have waited what has come meanwhile.
pub(super) fn serve_waiting(
    desk: &mut Desk<'_>,
    queues: &HashMap<Arc<str>, i64>,
    parked: &mut Parked,
    group: &mut Group,
) -> rusqlite::Result<()> {
    for (name, line) in parked.lines() {
        let Some(queue) = queues.get(name) else { continue };
        if !group.is_stirred && !desk.stirred.contains(queue) {
            continue;
        }
        while let Some(waiting) = line.next_waiting() {
            let Ask::Receive(options) = &waiting.order.ask else { continue };
            let at = Place { queue: *queue };
            match desk.receive(at, options) {
                Ok(received) if received.messages.is_empty() => {
                    line.next = received.next;
                    line.put_back(waiting);
                    break;
                }
                Ok(received) => group.done.push((waiting.order, Ok(Answer::Received(received)))),
                Err(Failure::Refused(error)) => group.done.push((waiting.order, Err(error))),
                Err(Failure::Sql(error)) => {
                    group.orders.push_front(waiting.order);
                    return Err(error);
                }
            }
        }
        serve_for_replies(desk, Place { queue: *queue }, line, group)?;
    }
    Ok(())
}

/// Gives those who have waited for a reply the one that has come.
fn serve_for_replies(desk: &Desk<'_>, at: Place, line: &mut Line, group: &mut Group) -> rusqlite::Result<()> {
    let mut still = Vec::new();
    for waiting in line.take_for_replies() {
        let Ask::Result(request, _) = &waiting.order.ask else { continue };
        match desk.result(at, *request) {
            Ok(None) => still.push(waiting),
            Ok(reply) => group.done.push((waiting.order, Ok(Answer::Reply(reply)))),
            Err(Failure::Refused(error)) => group.done.push((waiting.order, Err(error))),
            Err(Failure::Sql(error)) => {
                group.orders.push_front(waiting.order);
                line.put_back_for_replies(still);
                return Err(error);
            }
        }
    }
    line.put_back_for_replies(still);
    Ok(())
}

/// The number of the reply that was kept last.
pub(super) fn newest_reply(connection: &Connection) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("SELECT coalesce(max(number), 0) FROM result")?;
    statement.query_row([], |row| row.get(0))
}

/// Whether something may be received from the queue now, and when that changes by itself.
pub(super) fn receivable(
    connection: &Connection,
    queue: i64,
    now: Micros,
) -> rusqlite::Result<(bool, Option<Micros>)> {
    match may_receive(connection, queue, now)? {
        HeldBack::ForNow => Ok((false, None)),
        HeldBack::Until(time) => Ok((false, Some(time))),
        HeldBack::No => glance(connection, queue, now),
    }
}

/// Whether there is something in the queue to be received, and when something comes back.
pub(super) fn glance(
    connection: &Connection,
    queue: i64,
    now: Micros,
) -> rusqlite::Result<(bool, Option<Micros>)> {
    let is_ready = connection
        .prepare_cached("SELECT 1 FROM message WHERE queue = ?1 AND state = 0 LIMIT 1")?
        .exists([queue])?;
    let next: Option<Micros> = connection
        .prepare_cached("SELECT min(due) FROM message WHERE queue = ?1 AND due IS NOT NULL")?
        .query_row([queue], |row| row.get(0))?;
    Ok((is_ready || next.is_some_and(|next| next <= now), next))
}

/// Whether the time to live of something in the queue is over.
pub(super) fn has_expired(connection: &Connection, queue: i64, now: Micros) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM message WHERE queue = ?1 AND state < 2 AND expires <= ?2 LIMIT 1")?
        .exists([queue, now])
}

/// The number of a queue in this file, which gets one if it has none; None if somebody only looks for it.
pub(super) fn queue_number(
    connection: &Connection,
    queues: &mut HashMap<Arc<str>, i64>,
    order: &Order,
) -> rusqlite::Result<Option<i64>> {
    let name = &order.queue;
    if let Some(number) = queues.get(name) {
        return Ok(Some(*number));
    }
    if !order.ask.is_read() {
        connection
            .prepare_cached("INSERT OR IGNORE INTO queue (name) VALUES (?1)")?
            .execute([name.as_ref()])?;
    }
    let number = connection
        .prepare_cached("SELECT number FROM queue WHERE name = ?1")?
        .query_row([name.as_ref()], |row| row.get(0))
        .optional()?;
    if let Some(number) = number {
        queues.insert(Arc::clone(name), number);
    }
    Ok(number)
}
