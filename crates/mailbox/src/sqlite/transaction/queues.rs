//! Queues by name, and their settings.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::{OperationResult, Transaction};
use crate::backend::MessageIds;
use crate::sqlite::storage::{Creation, DatabaseFile};
use crate::sqlite::writer::failpoint::{FaultPoint, reach};
use crate::sqlite::writer::handle::OpenQueues;
use crate::{BackendErrorKind, DeadReason, MailboxError, QueueSettings, SettingsChange};

/// Returns the number of a queue. Creates a missing queue if `creation` allows it.
pub(crate) fn queue_number(
    connection: &Connection,
    name: &str,
    creation: Creation,
) -> rusqlite::Result<Option<i64>> {
    let mut select = connection.prepare_cached("SELECT number FROM queue WHERE name = ?1")?;
    let number = select.query_row([name], |row| row.get(0)).optional()?;
    if number.is_some() || creation == Creation::Never {
        return Ok(number);
    }
    connection.prepare_cached("INSERT INTO queue (name) VALUES (?1)")?.execute([name])?;
    reach(FaultPoint::Statement);
    Ok(Some(connection.last_insert_rowid()))
}

fn stored_settings(connection: &Connection, queue: i64) -> rusqlite::Result<Option<String>> {
    let mut select = connection.prepare_cached("SELECT settings FROM queue WHERE number = ?1")?;
    Ok(select.query_row([queue], |row| row.get(0)).optional()?.flatten())
}

/// Returns the settings, for callers that change nothing. Unreadable settings become the defaults here: a
/// receive reports what is wrong with them.
pub(super) fn settings_or_default(connection: &Connection, queue: i64) -> rusqlite::Result<QueueSettings> {
    let stored = stored_settings(connection, queue)?;
    Ok(stored.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

impl Transaction<'_> {
    /// Returns the delivery limit of the queue.
    pub(super) fn limit(&mut self, queue: i64) -> OperationResult<u32> {
        Ok(self.settings(queue)?.max_deliveries)
    }

    /// Returns the settings of the queue. They are read once per transaction, because another process may
    /// have changed them since the last one.
    pub(super) fn settings(&mut self, queue: i64) -> OperationResult<QueueSettings> {
        if let Some((_, settings)) = self.settings.iter().find(|(of, _)| *of == queue) {
            return Ok(settings.clone());
        }
        let settings = match stored_settings(self.connection, queue)? {
            None => QueueSettings::default(),
            Some(text) => serde_json::from_str(&text).map_err(|error| {
                MailboxError::backend(BackendErrorKind::Damaged, format!(
                    "the settings of the mailbox cannot be read ({error}): set them again, or restore a backup"
                ))
            })?,
        };
        self.settings.push((queue, settings.clone()));
        Ok(settings)
    }

    /// Changes the settings. Everything that was due before now is done under the old settings first.
    pub(super) fn configure(
        &mut self,
        queue: i64,
        change: &SettingsChange,
    ) -> OperationResult<QueueSettings> {
        let before = self.settings(queue)?;
        let after = change.applied_to(&before);
        self.settle(queue)?;
        let text = serde_json::to_string(&after).unwrap_or_default();
        self.run("UPDATE queue SET settings = ?1 WHERE number = ?2", params![text, queue])?;
        self.settings.retain(|(other, _)| *other != queue);
        // The new settings may allow a delivery to a waiting receiver.
        self.stir(queue);
        if after.group_rate_limit != before.group_rate_limit {
            self.end_waits_for_rate(queue)?;
        }
        if after.max_deliveries < before.max_deliveries {
            let exhausted: Vec<i64> = self.rows(
                "SELECT number FROM message WHERE queue = ?1 AND state < 2 AND deliveries >= ?2 ORDER BY number",
                params![queue, after.max_deliveries],
                |row| row.get(0),
            )?;
            for number in exhausted {
                self.die(queue, number, &DeadReason::Deliveries)?;
            }
        }
        Ok(after)
    }
}

/// Creates the queue and applies its settings when a mailbox is opened.
pub(crate) fn register(
    connection: &Connection,
    file: &DatabaseFile,
    name: &str,
    change: &SettingsChange,
) -> OperationResult<()> {
    let (mut ids, open_queues) = (MessageIds::new(), OpenQueues::default());
    // Usually nothing has to change. Then this takes no write lock.
    match queue_number(connection, name, Creation::Never)? {
        None if file.creation == Creation::Never => return Err(file.missing(name).into()),
        None => {}
        Some(queue) => {
            let settings =
                Transaction::new(connection, file.clock.as_ref(), &mut ids, &open_queues).settings(queue)?;
            if change.applied_to(&settings) == settings {
                return Ok(());
            }
        }
    }
    let locked = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    if let Some(queue) = queue_number(connection, name, Creation::IfMissing)?
        && *change != SettingsChange::default()
    {
        Transaction::new(connection, file.clock.as_ref(), &mut ids, &open_queues).configure(queue, change)?;
    }
    Ok(locked.commit()?)
}
