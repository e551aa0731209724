//! Full disks, files of other formats, and locks that are never released. Each yields an error that names the file and
//! the remedy, nothing is half done, and work continues once the cause is gone.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use snakepit::mailbox::sqlite::{DiskSync, LogSync, SqliteOptions};
use snakepit::mailbox::{Mailbox, MailboxError, ReceiveOptions, SendOptions, SqliteMailbox};
use snakepit_proving::deadline::{Deadline, recheck};
use snakepit_proving::private_mount::{self, make_read_only, mount_tmpfs, remount, with_private_mounts};
use snakepit_proving::unproven;
use tempfile::TempDir;

use super::mailer_process::MailerProcess;
use super::{block_on, dir, until_closed};

fn refusal(path: &Path) -> String {
    let error = SqliteMailbox::open(path).expect_err("it cannot be opened").to_string();
    assert!(error.contains(path.to_str().expect("a text")), "it does not name the file: {error}");
    error
}

fn with_one_message(dir: &TempDir) -> std::path::PathBuf {
    let path = dir.path().join("mail");
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    block_on(mailbox.send(b"a".to_vec(), SendOptions::new())).expect("it is sent");
    drop(mailbox);
    until_closed(&path);
    path
}

#[test]
fn a_text_file_is_rejected_and_left_unchanged() {
    let dir = dir();
    let path = dir.path().join("text");
    fs::write(&path, "to whom it may concern ".repeat(100)).expect("a file");
    let error = refusal(&path);
    assert!(error.contains("is not a SQLite file") && error.contains("name another file"), "{error}");
    assert_eq!(fs::read_to_string(&path).expect("the text"), "to whom it may concern ".repeat(100));
}

#[test]
fn a_database_of_another_program_is_refused_and_left_as_it_is() {
    let dir = dir();
    let path = dir.path().join("other");
    Connection::open(&path).and_then(|other| other.execute_batch("CREATE TABLE t (x)")).expect("a database");
    let before = fs::read(&path).expect("its bytes");
    assert!(refusal(&path).contains("another program"));
    assert_eq!(fs::read(&path).expect("its bytes"), before);
}

#[test]
fn a_newer_format_is_refused_and_left_as_it_is() {
    let dir = dir();
    let path = with_one_message(&dir);
    Connection::open(&path).and_then(|file| file.pragma_update(None, "user_version", 99)).expect("a change");
    until_closed(&path);
    let before = fs::read(&path).expect("its bytes");
    let error = refusal(&path);
    assert!(error.contains("99") && error.contains("update this program"), "{error}");
    assert_eq!(fs::read(&path).expect("its bytes"), before);
}

#[test]
fn a_missing_directory_is_named_in_the_error() {
    assert!(refusal(Path::new("/nowhere/at/all/mail")).contains("directory must exist"));
}

#[test]
fn a_file_whose_start_is_overwritten_is_refused() {
    let dir = dir();
    let path = with_one_message(&dir);
    let file = OpenOptions::new().write(true).open(&path).expect("the file");
    file.write_all_at(&[0xa5; 64], 0).expect("a blow");
    assert!(refusal(&path).contains("restore a backup"));
}

#[test]
fn a_damaged_page_is_an_error_and_works_again_when_a_copy_is_put_back() {
    let dir = dir();
    let path = with_one_message(&dir);
    let copy = fs::read(&path).expect("a copy");
    let damaged: Vec<u8> =
        copy.iter().enumerate().map(|(at, byte)| if at < 4096 { *byte } else { 0xa5 }).collect();
    fs::write(&path, damaged).expect("a blow");
    let error = match SqliteMailbox::open(&path) {
        Err(error) => error,
        Ok(mailbox) => block_on(mailbox.receive(ReceiveOptions::new())).expect_err("a page is damaged"),
    };
    let text = error.to_string();
    assert!(text.contains("is damaged") && text.contains(".recover"), "{text}");
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{suffix}", path.display()));
    }
    fs::write(&path, copy).expect("the copy");
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox again");
    assert_eq!(block_on(mailbox.receive(ReceiveOptions::new())).expect("a receive").len(), 1);
}

#[test]
fn a_read_only_file_system_is_refused() {
    if let Some(why) = private_mount::refusal() {
        return unproven(&why);
    }
    with_private_mounts(|| {
        let dir = dir();
        mount_tmpfs(dir.path(), "size=4m");
        let path = with_one_message(&dir);
        make_read_only(dir.path());
        let error = refusal(&path);
        assert!(error.contains("written") || error.contains("write"), "{error}");
    });
}

#[test]
fn a_full_disk_fails_the_send_and_the_mailbox_goes_on_when_there_is_room() {
    if let Some(why) = private_mount::refusal() {
        return unproven(&why);
    }
    with_private_mounts(|| {
        let dir = dir();
        mount_tmpfs(dir.path(), "size=2m");
        let mailbox = SqliteMailbox::open(dir.path().join("mail")).expect("a mailbox");
        let mut sent = 0;
        let error = loop {
            match block_on(mailbox.send(vec![7; 100_000], SendOptions::new())) {
                Ok(_) => sent += 1,
                Err(error) => break error.to_string(),
            }
            assert!(sent < 100, "the disk is never full");
        };
        assert!(error.contains("no space is left") && error.contains("make room"), "{error}");
        // An administrator frees space.
        remount(dir.path(), "size=16m");
        assert_eq!(block_on(mailbox.count()).expect("a count").visible, sent);
        block_on(mailbox.send(vec![7; 100_000], SendOptions::new())).expect("there is room");
        for _ in 0..=sent {
            let messages = block_on(mailbox.receive(ReceiveOptions::new())).expect("a receive");
            assert_eq!(messages[0].body, vec![7; 100_000]);
            block_on(messages[0].ack()).expect("an ack");
        }
        assert_eq!(block_on(mailbox.count()).expect("a count").visible, 0);
    });
}

#[test]
fn a_process_that_is_stopped_inside_a_transaction_is_named_and_nothing_is_lost_when_it_goes_on() {
    let dir = dir();
    let path = dir.path().join("mail");
    let mailbox =
        SqliteOptions::new().busy_timeout(Duration::from_millis(300)).open(&path).expect("a mailbox");
    let mut other = MailerProcess::start(&path, "send", &["theirs"], Some("operation:stop"));
    other.stopped();
    let pid = other.child.id().to_string();
    for outcome in [
        block_on(mailbox.send(b"ours".to_vec(), SendOptions::new())).map(drop),
        block_on(mailbox.health()),
        block_on(mailbox.receive(ReceiveOptions::new())).map(drop),
    ] {
        let error = outcome.expect_err("the file is locked");
        assert!(matches!(error, MailboxError::Busy(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&pid) && text.contains("stopped") && text.contains("kill -CONT"), "{text}");
    }
    other.go_on();
    assert!(other.line().expect("an answer").starts_with("sent"));
    block_on(mailbox.health()).expect("it is free");
    block_on(mailbox.send(b"ours".to_vec(), SendOptions::new())).expect("it is sent");
    let messages = block_on(mailbox.receive(ReceiveOptions::new().max_messages(10))).expect("a receive");
    assert_eq!(
        messages.iter().map(|message| &message.body[..]).collect::<Vec<_>>(),
        [b"theirs", &b"ours"[..]]
    );
}

#[test]
fn removing_the_open_file_is_an_error_and_loses_no_message() {
    let dir = dir();
    let path = with_one_message(&dir);
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    fs::rename(&path, dir.path().join("elsewhere")).expect("it is moved");
    let error =
        block_on(mailbox.send(b"b".to_vec(), SendOptions::new())).expect_err("the file has gone").to_string();
    assert!(error.contains("moved or removed"), "{error}");
    block_on(mailbox.send(b"c".to_vec(), SendOptions::new())).expect("it is made anew");
    let messages = block_on(mailbox.receive(ReceiveOptions::new().max_messages(10))).expect("a receive");
    assert_eq!(messages.len(), 1, "{messages:?}");
}

/// Counts syncs, and fails them on demand.
#[derive(Debug, Default)]
struct CountedSync {
    done: AtomicUsize,
    fails: AtomicBool,
}

impl LogSync for CountedSync {
    fn sync(&self, log: &File, path: &Path) -> io::Result<()> {
        self.done.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is broken"));
        }
        DiskSync.sync(log, path)
    }
}

impl CountedSync {
    fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    fn one_more_than(&self, before: usize) {
        recheck(Deadline::patient(), "one more sync", || (self.done() > before).then_some(()));
    }
}

#[test]
fn a_lease_is_synced_later_and_a_failed_sync_does_not_fail_the_receive() {
    let dir = dir();
    let sync = Arc::new(CountedSync::default());
    let options = SqliteOptions::new().log_sync(Arc::clone(&sync) as _);
    let mailbox = options.open(dir.path().join("mail")).expect("a mailbox");
    let send = || block_on(mailbox.send(b"a".to_vec(), SendOptions::new())).expect("it is sent");
    let receive = || block_on(mailbox.receive(ReceiveOptions::new())).expect("a receive").remove(0);
    send();
    let before = sync.done();
    let message = receive();
    sync.one_more_than(before);
    block_on(message.ack()).expect("an ack");
    send();
    let before = sync.done();
    sync.fails.store(true, Ordering::SeqCst);
    let message = receive();
    sync.one_more_than(before);
    sync.fails.store(false, Ordering::SeqCst);
    // The file is opened again, and the lease is still valid.
    block_on(message.ack()).expect("an ack");
    assert_eq!(block_on(mailbox.count()).expect("a count").visible, 0);
}
