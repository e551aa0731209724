//! Explains SQLite's errors to callers: what happened to which file, and what to do next.

use std::path::Path;

use rusqlite::ErrorCode;

use super::storage::lock_holder;
use crate::{BackendErrorKind, MailboxError};

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum OperationError {
    /// Only this operation fails: its changes are undone, and the other operations of the transaction
    /// continue.
    Refused(MailboxError),
    /// SQLite failed.
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for OperationError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<MailboxError> for OperationError {
    fn from(error: MailboxError) -> Self {
        Self::Refused(error)
    }
}

impl OperationError {
    pub(crate) fn explain(self, path: &Path) -> MailboxError {
        match self {
            Self::Refused(error) => error,
            Self::Sql(error) => explain(path, error),
        }
    }
}

/// Reports whether the error concerns only one statement, and neither the file nor the connection.
pub(crate) fn concerns_one_operation(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch)
    )
}

/// Explains the error to a person, with what to do next.
pub(crate) fn explain(path: &Path, error: rusqlite::Error) -> MailboxError {
    let file = path.display();
    let (kind, reason) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            return MailboxError::Busy(lock_holder::describe_holder(path));
        }
        Some(ErrorCode::DiskFull) => (
            BackendErrorKind::Full,
            format!(
                "no space is left for {file}: nothing was changed; make room on its disk, and it works again"
            ),
        ),
        Some(ErrorCode::ReadOnly) => (
            BackendErrorKind::NoAccess,
            format!("{file} or its directory cannot be written: give this user write permission for both"),
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => (
            BackendErrorKind::NoAccess,
            format!(
                "{file} cannot be opened: its directory must exist, and this user must be allowed to read and write both"
            ),
        ),
        Some(ErrorCode::NotADatabase) => (
            BackendErrorKind::Foreign,
            format!(
                "{file} is not a SQLite file, or its start was overwritten: name another file, or restore a backup"
            ),
        ),
        Some(ErrorCode::DatabaseCorrupt) => (
            BackendErrorKind::Damaged,
            format!(
                "{file} is damaged: restore a backup, or save what can be read with `sqlite3 {file} .recover`"
            ),
        ),
        Some(ErrorCode::SystemIoFailure) => (
            BackendErrorKind::Io,
            format!(
                "reading or writing {file} failed: look for disk errors, and for a limit on the size of files \
                 (`ulimit -f`); the next operation opens the file again"
            ),
        ),
        Some(ErrorCode::TooBig) => {
            (BackendErrorKind::TooBig, format!("the body is larger than {file} can keep: 1 GB at most"))
        }
        _ => (BackendErrorKind::Other, format!("SQLite cannot use {file}: try again, or restore a backup")),
    };
    MailboxError::backend_caused(kind, reason, error)
}
