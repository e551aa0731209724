//! A mailbox is one file: a copy of the main file is complete, or reports that it is not.

use std::fs;
use std::path::{Path, PathBuf};

use snakepit::mailbox::sqlite::SqliteOptions;
use snakepit::mailbox::{Mailbox, SendOptions, SqliteMailbox};
use snakepit_proving::deadline::{Deadline, recheck};
use tempfile::TempDir;

use super::mailer_process::MailerProcess;
use super::{beside, block_on, dir};

fn send(mailbox: &SqliteMailbox, body: &str) {
    block_on(mailbox.send(body.into(), SendOptions::new())).expect("it is sent");
}

/// Copies only the main file, as `cp` does.
fn copy(dir: &TempDir, path: &Path) -> PathBuf {
    let copy = dir.path().join("copy");
    fs::copy(path, &copy).expect("a copy");
    copy
}

fn visible(path: &Path) -> u64 {
    let mailbox = SqliteMailbox::open(path).expect("a mailbox");
    block_on(mailbox.count()).expect("a count").visible
}

fn log_size(path: &Path) -> u64 {
    fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len())
}

fn until_log_is_empty(path: &Path) {
    recheck(Deadline::patient(), "the log is in the file", || (log_size(path) == 0).then_some(()));
}

/// Creates a mailbox with one message whose last user was killed.
fn left_by_a_killed_process(dir: &TempDir) -> PathBuf {
    let path = dir.path().join("mail");
    let mut other = MailerProcess::start(&path, "send", &["a"], Some("answered:kill"));
    other.rest();
    assert!(log_size(&path) > 0, "it had no time to move the log");
    path
}

#[test]
fn a_copy_of_the_file_has_everything_when_the_last_handle_is_gone() {
    let dir = dir();
    let path = dir.path().join("mail");
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    send(&mailbox, "a");
    drop(mailbox);
    // The test does not wait here, because the drop did.
    assert!(!beside(&path, "-wal").exists(), "the log is still there");
    assert_eq!(visible(&copy(&dir, &path)), 1);
}

#[test]
fn a_copy_of_the_file_has_everything_when_the_service_is_idle() {
    let dir = dir();
    let path = dir.path().join("mail");
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    for round in 1..=2 {
        send(&mailbox, "a");
        until_log_is_empty(&path);
        assert_eq!(visible(&copy(&dir, &path)), round);
    }
}

/// SQLite restarts the log when no process reads it. If all processes competed for its lock at once, that would never
/// happen.
#[test]
fn the_log_stays_bounded_while_many_processes_write() {
    let dir = dir();
    let path = dir.path().join("mail");
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    let mut others: Vec<_> =
        (0..4).map(|_| MailerProcess::start(&path, "send-many", &["4000"], None)).collect();
    let mut longest = 0;
    for other in &mut others {
        assert_eq!(other.line().as_deref(), Some("sent"));
        longest = log_size(&path).max(longest);
    }
    assert_eq!(block_on(mailbox.count()).expect("a count").visible, 16_000);
    assert!(longest < 16 << 20, "{longest} bytes, of 256 MB that were written");
}

#[test]
fn a_killed_process_leaves_its_log_and_the_next_one_goes_on_with_it() {
    let dir = dir();
    let path = left_by_a_killed_process(&dir);
    assert_eq!(visible(&path), 1);
}

#[test]
fn a_lost_log_is_an_error_that_names_it_and_the_way_out() {
    let dir = dir();
    let path = left_by_a_killed_process(&dir);
    let alone = copy(&dir, &path);
    for _ in 0..2 {
        let error = SqliteMailbox::open(&alone).expect_err("its log is missing").to_string();
        assert!(error.contains("copy-wal") && error.contains("snakepit mailbox recover"), "{error}");
    }
    // With its log put back, the copy has everything.
    fs::copy(beside(&path, "-wal"), beside(&alone, "-wal")).expect("the log");
    assert_eq!(visible(&alone), 1);
    fs::remove_file(beside(&path, "-wal")).expect("the log");
    SqliteMailbox::open(&path).expect_err("its log was removed");
}

#[test]
fn a_file_without_its_log_is_opened_on_explicit_request() {
    let dir = dir();
    let alone = copy(&dir, &left_by_a_killed_process(&dir));
    let mailbox = SqliteOptions::new().accept_lost_log().open(&alone).expect("what is left");
    assert_eq!(block_on(mailbox.count()).expect("a count").visible, 0);
    drop(mailbox);
    assert_eq!(visible(&alone), 0, "it is asked once");
}

#[test]
fn a_file_that_is_used_again_after_idling_is_marked_as_needing_its_log() {
    let dir = dir();
    let path = dir.path().join("mail");
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    send(&mailbox, "a");
    until_log_is_empty(&path);
    send(&mailbox, "b");
    let alone = copy(&dir, &path);
    if log_size(&path) > 0 {
        SqliteMailbox::open(&alone).expect_err("it lacks the second message");
    }
}

#[test]
fn a_process_that_ends_leaves_the_log_to_those_who_go_on() {
    let dir = dir();
    let path = dir.path().join("mail");
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    send(&mailbox, "a");
    for _ in 0..3 {
        let mut other = MailerProcess::start(&path, "send", &["b"], None);
        assert!(other.rest().iter().any(|line| line.starts_with("sent")));
        send(&mailbox, "c");
    }
    drop(mailbox);
    assert_eq!(visible(&copy(&dir, &path)), 7);
}

#[test]
fn an_idle_file_gives_back_the_room_that_it_does_not_need() {
    let dir = dir();
    let path = dir.path().join("mail");
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    for _ in 0..40 {
        block_on(mailbox.send(vec![7; 500_000], SendOptions::new())).expect("it is sent");
    }
    let full = block_on(mailbox.file_size()).expect("a size");
    assert!(full.bytes > 20_000_000, "{full:?}");
    block_on(mailbox.purge()).expect("a purge");
    // Repeated queries do not keep the file from being idle.
    recheck(Deadline::patient(), "the file is small", || {
        let size = block_on(mailbox.file_size()).expect("a size");
        (size.bytes < 3_000_000).then_some(())
    });
    recheck(Deadline::patient(), "the disk has the room", || {
        (fs::metadata(&path).expect("the file").len() < 3_000_000).then_some(())
    });
}

#[test]
fn a_backup_of_a_mailbox_in_use_is_whole() {
    let dir = dir();
    let path = dir.path().join("mail");
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    send(&mailbox, "a");
    let copy = dir.path().join("copy");
    block_on(mailbox.backup(&copy)).expect("a backup");
    send(&mailbox, "b");
    assert_eq!((visible(&copy), visible(&path)), (1, 2));
    let error = block_on(mailbox.backup(&copy)).expect_err("it is there").to_string();
    assert!(error.contains("must not exist yet"), "{error}");
}
