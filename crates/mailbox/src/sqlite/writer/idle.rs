//! What the writer does when nobody uses the file: it leaves one whole file.

use rusqlite::config::DbConfig;

use super::{FileWriter, IDLE, is_busy};
use crate::sqlite::storage::maintenance::shrink;
use crate::sqlite::storage::wal;

/// How far an idle file is tidied up.
enum TidyProgress {
    Whole,
    InPart,
    NotYet,
}

impl FileWriter {
    /// Moves the log into the main file if nobody has changed it for a while: then a copy of the file is whole.
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
            // Operations come first.
            Ok(TidyProgress::InPart) => self.tidy_at = Some(self.now()),
            Ok(TidyProgress::NotYet) => self.tidy_at = later,
            Err(error) if is_busy(connection, &error) => self.tidy_at = later,
            Err(error) => {
                tracing::warn!(path = %self.file.path.display(), %error, "a mailbox's log cannot be moved into its file");
                self.disconnect_after(&error);
            }
        }
    }

    /// Leaves one whole file, if nobody else uses it.
    pub(super) fn close(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        // Closing tidies up by name, and the name may belong to another file now.
        if self.inode == self.file.inode() && !self.is_log_doubtful && wal::complete(&connection) == Ok(true)
        {
            let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        }
    }
}
