//! The texts of all errors of mailboxes.

use std::sync::Arc;
use std::time::Duration;

use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::{MailboxError, check_wait};

#[test]
fn errors_of_mailboxes() {
    let not_a_number = serde_json::from_str::<u64>("\"ten\"").expect_err("a string");
    let full = std::io::Error::from_raw_os_error(28);
    let mut texts = ErrorTexts::new();
    every_variant!(texts, MailboxError {
        ReceiptExpired => [MailboxError::ReceiptExpired],
        Closed => [MailboxError::Closed("numbers".into())],
        OutOfRange => [check_wait(Duration::from_mins(1)).expect_err("too long")],
        Body => [
            MailboxError::body::<u64>("read", &not_a_number),
            MailboxError::body::<f64>("written", &not_a_number),
        ],
        NoReplyTo => [MailboxError::NoReplyTo],
        NoReply => [MailboxError::NoReply {
            id: "0199f2a4-6c00-7000-8000-000000000001".parse().expect("an id"),
            waited: Duration::from_secs(30),
        }],
        ErrorReply => [MailboxError::ErrorReply {
            name: "ZeroDivisionError".into(),
            reason: "division by zero".into(),
        }],
        Missing => [MailboxError::Missing("nubmers".into())],
        Busy => [MailboxError::Busy(
            "mail.db is locked by process 4711 (python3, stopped): continue it with `kill -CONT 4711`, or end it"
                .into(),
        )],
        Backend => [MailboxError::Backend {
            reason: "cannot list the mailboxes".into(),
            source: Some(Arc::new(full)),
        }],
    });
    insta::assert_snapshot!(texts);
}

/// What SQLite reports, as a person reads it.
#[cfg(feature = "sqlite")]
#[test]
fn errors_of_sqlite() {
    use rusqlite::ErrorCode;

    let codes = [
        ErrorCode::DiskFull,
        ErrorCode::ReadOnly,
        ErrorCode::CannotOpen,
        ErrorCode::NotADatabase,
        ErrorCode::DatabaseCorrupt,
        ErrorCode::SystemIoFailure,
        ErrorCode::TooBig,
        ErrorCode::SchemaChanged,
    ];
    let mut texts = ErrorTexts::new();
    for code in codes {
        let error = rusqlite::ffi::Error { code, extended_code: 0 };
        let error = rusqlite::Error::SqliteFailure(error, Some("the words of SQLite".into()));
        let error = crate::sqlite::error::explain(std::path::Path::new("mail.db"), error);
        texts.add(&format!("{code:?}"), &error);
    }
    insta::assert_snapshot!(texts);
}
