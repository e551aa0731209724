//! Tidying up while nobody uses the file: afterwards the main file is complete without its log.

use rusqlite::config::DbConfig;

use super::{FileWriter, IDLE, is_busy};
use crate::sqlite::storage::maintenance::shrink;
use crate::sqlite::storage::wal;

/// The progress of tidying up.
enum TidyProgress {
    Whole,
    InPart,
    NotYet,
}

impl FileWriter {
    /// Gives free pages back and moves the log into the main file, if nobody has changed the file since the
    /// last check. Then a copy of the main file alone is complete.
    pub(super) fn tidy(&mut self) {
        self.tidy_at = None;
        let Some(connection) = self.connection.as_ref().filter(|_| self.inode == self.file.inode()) else {
            return;
        };
        let later = Some(self.in_future(IDLE));
        let before = &mut self.tidy_version;
        let tidied = wal::data_version(connection).and_then(|version| {
            Ok(match before.replace(version) == Some(version) {
                true if shrink(connection)? => TidyProgress::InPart,
                true if wal::complete(connection)? => TidyProgress::Whole,
                _ => TidyProgress::NotYet,
            })
        });
        match tidied {
            Ok(TidyProgress::Whole) => self.generation = None,
            // The rest follows at once, but after operations that have come meanwhile.
            Ok(TidyProgress::InPart) => self.tidy_at = Some(self.now()),
            Ok(TidyProgress::NotYet) => self.tidy_at = later,
            Err(error) if is_busy(connection, &error) => self.tidy_at = later,
            Err(error) => {
                tracing::warn!(path = %self.file.path.display(), %error, "a mailbox's log cannot be moved into its file");
                self.disconnect_after(&error);
            }
        }
    }

    /// Closes the connection. If nobody else uses the file, leaves one complete file without a log.
    pub(super) fn close(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        // When SQLite closes the last connection, it removes the log by its name, and that name may belong to
        // another file now.
        if self.inode == self.file.inode() && !self.is_log_doubtful && wal::complete(&connection) == Ok(true)
        {
            let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        }
    }
}
