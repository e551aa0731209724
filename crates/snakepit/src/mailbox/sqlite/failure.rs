//! What SQLite's errors mean for whoever uses the mailbox: what happened to which file, and the way out.

use std::path::Path;
use std::sync::Arc;

use rusqlite::ErrorCode;

use super::health;
use crate::mailbox::MailboxError;

/// Why an order was not done.
#[derive(Debug)]
pub(super) enum Failure {
    /// It concerns this order only: its changes are undone, the others go on.
    Refused(MailboxError),
    /// SQLite failed.
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<MailboxError> for Failure {
    fn from(error: MailboxError) -> Self {
        Self::Refused(error)
    }
}

/// Whether the error is about one statement, and says nothing of the file or the connection.
pub(super) fn concerns_one_order(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch)
    )
}

/// For a person, with the way out.
pub(super) fn explain(path: &Path, error: rusqlite::Error) -> MailboxError {
    let file = path.display();
    let reason = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            return MailboxError::Busy(health::who_locks(path));
        }
        Some(ErrorCode::DiskFull) => format!(
            "no space is left for {file}: nothing was changed; make room on its disk, then it goes on by itself"
        ),
        Some(ErrorCode::ReadOnly) => {
            format!("{file} or its directory cannot be written: give this user the right to write both")
        }
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => format!(
            "{file} cannot be opened: its directory must exist, and this user must be allowed to read and write both"
        ),
        Some(ErrorCode::NotADatabase) => {
            format!(
                "{file} is not a SQLite file, or its start was overwritten: name another file, or put a copy back"
            )
        }
        Some(ErrorCode::DatabaseCorrupt) => format!(
            "{file} is damaged: put a copy back, or save what can be read with `sqlite3 {file} .recover`"
        ),
        Some(ErrorCode::SystemIoFailure) => format!(
            "reading or writing {file} failed: look for errors of its disk, and for a limit on the size of files \
             (`ulimit -f`); it is opened anew with the next operation"
        ),
        Some(ErrorCode::TooBig) => format!("the body is larger than {file} can keep: 1 GB at most"),
        _ => format!("{file} failed"),
    };
    MailboxError::Backend { reason, source: Some(Arc::new(error)) }
}
