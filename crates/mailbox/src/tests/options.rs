//! The errors of options, and of files that are no mailboxes.

use std::time::Duration;

use snakepit_error_texts::ErrorTexts;

use crate::{NackOptions, ReceiveOptions, SendOptions, SettingsChange};

#[test]
fn every_option_outside_its_range_is_refused_with_the_range() {
    let mut texts = ErrorTexts::new();
    let (none, year) = (Duration::ZERO, Duration::from_hours(24 * 400));
    let mut refused = |checked: Result<(), crate::MailboxError>| {
        texts.add("", &checked.expect_err("out of range"));
    };
    refused(SendOptions::new().delay(year).check());
    refused(SendOptions::new().group("").check());
    refused(SendOptions::new().group("a").delay(Duration::from_secs(1)).check());
    refused(SendOptions::new().rate_key("k".repeat(257)).check());
    refused(SendOptions::new().dedup_for(none).check());
    refused(SendOptions::new().keep_result(year).check());
    refused(SendOptions::new().time_to_live(none).check());
    refused(ReceiveOptions::new().max_messages(11).check());
    refused(ReceiveOptions::new().visibility_timeout(year).check());
    refused(ReceiveOptions::new().wait(year).check());
    refused(NackOptions::new().visibility(year).check());
    refused(SettingsChange::new().max_deliveries(0).check());
    refused(SettingsChange::new().rate_limit(0, year).check());
    refused(SettingsChange::new().group_rate_limit(1, none).check());
    insta::assert_snapshot!(texts);
}

#[cfg(feature = "sqlite")]
mod files {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;
    use crate::sqlite::SqliteOptions;
    use crate::{MailboxError, SqliteMailbox};

    /// Opens a mailbox in a directory that was made ready, and returns why it cannot be opened.
    fn refusal(
        make: impl FnOnce(&Path),
        open: impl FnOnce(&Path) -> Result<SqliteMailbox, MailboxError>,
    ) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("mail.db");
        make(&path);
        let refused = open(&path).map(drop).expect_err("no mailbox");
        let shown = dir.path().canonicalize().expect("a path").display().to_string();
        let user = rustix::process::geteuid().as_raw();
        refused.to_string().replace(&shown, "~").replace(&format!("({user})"), "(1000)")
    }

    fn mailbox_with(sql: &str) -> impl FnOnce(&Path) {
        move |path| {
            drop(SqliteMailbox::open(path).expect("a mailbox"));
            sql_into(path, sql);
        }
    }

    fn sql_into(path: &Path, sql: &str) {
        rusqlite::Connection::open(path).and_then(|file| file.execute_batch(sql)).expect("a change");
    }

    #[test]
    fn every_file_that_is_no_mailbox_is_refused_with_the_way_out() {
        let mut texts = ErrorTexts::new();
        let open = |path: &Path| SqliteMailbox::open(path);
        let existing = |path: &Path| SqliteOptions::new().existing().open(path);
        let beside = |path: &Path, suffix: &str| format!("{}{suffix}", path.display());
        let mut add = |name: &str, refusal: String| texts.add_text(name, &refusal);
        add("link", refusal(|path| symlink("victim", beside(path, "-wal")).expect("a link"), open));
        add("directory", refusal(|path| fs::create_dir(path).expect("a directory"), open));
        let open_to_all = |path: &Path| {
            fs::set_permissions(path.parent().expect("a directory"), Permissions::from_mode(0o777))
                .expect("chmod");
        };
        add("open directory", refusal(open_to_all, open));
        add("no directory", refusal(|_| {}, |path| SqliteMailbox::open(path.join("none/mail.db"))));
        add("no name", refusal(|_| {}, |path| SqliteMailbox::open(path.join(".."))));
        add("trigger", refusal(mailbox_with("CREATE VIEW v AS SELECT * FROM message"), open));
        add("newer", refusal(mailbox_with("PRAGMA user_version = 99"), open));
        add("foreign", refusal(|path| sql_into(path, "CREATE TABLE t (a)"), open));
        add(
            "text",
            refusal(|path| fs::write(path, "a diary of many words ".repeat(100)).expect("a file"), open),
        );
        add("missing", refusal(|_| {}, existing));
        add("empty", refusal(|path| fs::write(path, "").expect("a file"), existing));
        add(
            "no queue",
            refusal(mailbox_with(""), |path| SqliteOptions::new().existing().queue("typo").open(path)),
        );
        for url in ["mail.db", "sqlite:", "sqlite:mail.db#"] {
            add("url", refusal(|_| {}, |_| SqliteMailbox::open_url(url)));
        }
        insta::assert_snapshot!(texts);
    }
}
