//! The attempts of a message: its leases that ended without an ack.

use rusqlite::params;

use super::{OperationResult, Transaction};
use crate::message::attempt::{MAX_ATTEMPTS, shortened};
use crate::sqlite::stored_time::{time, wall_time};
use crate::{Attempt, AttemptEnd};

impl Transaction<'_> {
    /// Records a lease that ends without an ack or has lapsed.
    pub(super) fn record_attempt(
        &self,
        message: i64,
        end: AttemptEnd,
        error: Option<&str>,
    ) -> OperationResult<()> {
        // A lapsed lease lasted until its end, even if the lapse is noticed later.
        self.run(
            "INSERT OR REPLACE INTO attempt (message, lease, delivery, began, took, holder, ending, error)
             SELECT number, lease, deliveries, coalesce(began, ?2), max(?2 - max(?3 - due, 0) - coalesce(began, ?2), 0),
                 coalesce(holder, ''), ?4, ?5
             FROM message WHERE number = ?1",
            params![message, self.wall, self.now, end.number(), error.map(shortened)],
        )?;
        self.run(
            "DELETE FROM attempt WHERE message = ?1
                 AND lease <= (SELECT lease FROM attempt WHERE message = ?1 ORDER BY lease DESC LIMIT 1 OFFSET ?2)
                 AND lease IS NOT (SELECT max(lease) FROM attempt WHERE message = ?1 AND error IS NOT NULL)",
            params![message, MAX_ATTEMPTS as i64],
        )?;
        Ok(())
    }

    /// Returns the recorded attempts of a message, oldest first.
    pub(super) fn attempts(&self, message: i64) -> OperationResult<Vec<Attempt>> {
        let sql = "SELECT delivery, began, took, holder, ending, error FROM attempt WHERE message = ?1 ORDER BY lease";
        Ok(self.rows(sql, [message], |row| {
            Ok(Attempt {
                delivery: row.get(0)?,
                began_at: wall_time(row.get(1)?),
                took: time(row.get(2)?),
                holder: row.get(3)?,
                end: AttemptEnd::of_number(row.get(4)?),
                error: row.get(5)?,
            })
        })?)
    }
}
