//! The texts of all errors of mailboxes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::{BackendErrorKind, MailboxError, check_wait};

/// What the messages hold.
struct Order;

#[test]
fn every_error_says_the_thing_the_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    errors_of_mailboxes(&mut texts);
    #[cfg(feature = "sqlite")]
    errors_of_sqlite(&mut texts);
    insta::assert_snapshot!(texts);
}

fn errors_of_mailboxes(texts: &mut ErrorTexts) {
    let no_key = serde_json::to_vec(&HashMap::from([(vec![1], 1)])).expect_err("a key that is a list");
    let not_a_number = serde_json::from_str::<u64>("\"ten\"").expect_err("a string");
    let full = std::io::Error::from_raw_os_error(28);
    every_variant!(texts, MailboxError {
        ReceiptExpired => [MailboxError::ReceiptExpired],
        Closed => [MailboxError::Closed("numbers".into())],
        OutOfRange => [check_wait(Duration::from_mins(1)).expect_err("too long")],
        Body => [
            MailboxError::body::<Order>("read", &not_a_number),
            MailboxError::body::<Order>("written", &no_key),
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
            kind: BackendErrorKind::Full,
            reason: "cannot list the mailboxes".into(),
            source: Some(Arc::new(full)),
        }],
    });
}

/// What SQLite reports, as a person reads it.
#[cfg(feature = "sqlite")]
fn errors_of_sqlite(texts: &mut ErrorTexts) {
    use rusqlite::ffi;

    let codes = [
        ffi::SQLITE_FULL,
        ffi::SQLITE_READONLY,
        ffi::SQLITE_CANTOPEN,
        ffi::SQLITE_NOTADB,
        ffi::SQLITE_CORRUPT,
        ffi::SQLITE_IOERR,
        ffi::SQLITE_TOOBIG,
        ffi::SQLITE_SCHEMA,
    ];
    for code in codes {
        let error = ffi::Error::new(code);
        let name = format!("{:?}", error.code);
        let error = rusqlite::Error::SqliteFailure(error, None);
        texts.add(&name, &crate::sqlite::error::explain(std::path::Path::new("mail.db"), error));
    }
}
