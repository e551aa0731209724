//! Queues by their names, and what each keeps about itself.

use rusqlite::{Connection, OptionalExtension, params};

use super::{Desk, Outcome, Place};
use crate::mailbox::sqlite::clock::{micros, wall_micros};
use crate::mailbox::sqlite::failure::{Failure, explain};
use crate::mailbox::sqlite::open::Gates;
use crate::mailbox::sqlite::site::{Creation, Site};
use crate::mailbox::{DeadReason, MailboxError, MessageId, QueueSettings, SettingsChange};

impl Desk<'_> {
    pub(super) fn queue(&self, name: &str) -> Outcome<Option<i64>> {
        let mut statement = self.sql("SELECT number FROM queue WHERE name = ?1")?;
        Ok(statement.query_row([name], |row| row.get(0)).optional()?)
    }

    pub(super) fn make_queue(&self, name: &str) -> Outcome<i64> {
        self.run("INSERT INTO queue (name) VALUES (?1)", [name])?;
        Ok(self.connection.last_insert_rowid())
    }

    /// After how many deliveries a message of this queue is given up.
    pub(super) fn limit(&mut self, queue: i64) -> Outcome<u32> {
        Ok(self.settings(queue)?.max_deliveries)
    }

    /// Read once in each transaction: another process may have changed them since.
    pub(super) fn settings(&mut self, queue: i64) -> Outcome<QueueSettings> {
        if let Some((_, settings)) = self.settings.iter().find(|(of, _)| *of == queue) {
            return Ok(settings.clone());
        }
        let stored: Option<String> = self
            .sql("SELECT settings FROM queue WHERE number = ?1")?
            .query_row([queue], |row| row.get(0))
            .optional()?
            .flatten();
        let settings = match &stored {
            None => QueueSettings::default(),
            Some(text) => serde_json::from_str(text).map_err(|error| MailboxError::Backend {
                reason: format!(
                    "the settings of the mailbox cannot be read ({error}): set them again, or put a copy back"
                ),
                source: None,
            })?,
        };
        self.settings.push((queue, settings.clone()));
        Ok(settings)
    }

    /// What was due before now happens by the old settings.
    pub(super) fn configure(&mut self, at: Place, change: &SettingsChange) -> Outcome<QueueSettings> {
        let before = self.settings(at.queue)?;
        let after = change.applied_to(&before);
        self.settle(at)?;
        let text = serde_json::to_string(&after).unwrap_or_default();
        self.run("UPDATE queue SET settings = ?1 WHERE number = ?2", params![text, at.queue])?;
        self.settings.retain(|(queue, _)| *queue != at.queue);
        // Whoever waits may be given something now.
        self.stir(at.queue);
        if after.max_deliveries < before.max_deliveries {
            let exhausted = self.numbers(
                "SELECT number FROM message WHERE queue = ?1 AND state < 2 AND deliveries >= ?2 ORDER BY number",
                params![at.queue, after.max_deliveries],
            )?;
            for number in exhausted {
                self.die(at.queue, number, &DeadReason::Deliveries)?;
            }
        }
        Ok(after)
    }
}

/// Makes sure of a queue and of its settings, when a mailbox is opened.
pub(in crate::mailbox::sqlite) fn register(
    connection: &Connection,
    site: &Site,
    queue: &str,
    change: &SettingsChange,
) -> Result<(), MailboxError> {
    let failed = |failure: Failure| match failure {
        Failure::Refused(error) => error,
        Failure::Sql(error) => explain(&site.path, error),
    };
    try_register(connection, site, queue, change).map_err(failed)
}

fn try_register(connection: &Connection, site: &Site, queue: &str, change: &SettingsChange) -> Outcome<()> {
    let gates = Gates::default();
    // Nothing is sent here.
    let mut ids = || MessageId(uuid::Uuid::nil());
    let (now, wall) = (micros(site.clock.since_boot()), wall_micros(site.clock.as_ref()));
    let mut desk = Desk::new(connection, now, wall, &mut ids, &gates);
    let known = desk.queue(queue)?;
    if known.is_none() && site.creation == Creation::Never {
        return Err(site.missing(queue).into());
    }
    let is_as_wanted = match known {
        Some(known) => {
            let settings = desk.settings(known)?;
            change.applied_to(&settings) == settings
        }
        None => false,
    };
    if is_as_wanted {
        return Ok(());
    }
    connection.execute("BEGIN IMMEDIATE", [])?;
    let done = configure_under_lock(connection, site, queue, change, &gates);
    match &done {
        Ok(()) => drop(connection.execute("COMMIT", [])?),
        // SQLite may have rolled it back already.
        Err(_) => drop(connection.execute("ROLLBACK", [])),
    }
    done
}

fn configure_under_lock(
    connection: &Connection,
    site: &Site,
    queue: &str,
    change: &SettingsChange,
    gates: &Gates,
) -> Outcome<()> {
    let mut ids = || MessageId(uuid::Uuid::nil());
    let (now, wall) = (micros(site.clock.since_boot()), wall_micros(site.clock.as_ref()));
    let mut desk = Desk::new(connection, now, wall, &mut ids, gates);
    let queue = match desk.queue(queue)? {
        Some(queue) => queue,
        None => desk.make_queue(queue)?,
    };
    if *change != SettingsChange::default() {
        desk.configure(Place { queue }, change)?;
    }
    Ok(())
}
