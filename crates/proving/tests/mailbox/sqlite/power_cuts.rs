//! Operations that were reported done survive a power cut at any point.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use snakepit::mailbox::sqlite::SqliteOptions;
use snakepit::mailbox::{DeadReason, Mailbox, MailboxError, ReceiveOptions, SendOptions, SqliteMailbox};
use snakepit_proving::mailbox_faults::SettableClock;
use snakepit_proving::mailbox_faults::power_cut::{
    DiskImage, FileChange, RecordedSync, VFS_NAME, WriteLog, WriteLogEntry, fail_syncs, install,
};
use snakepit_proving::random::SeededRandom;
use snakepit_proving::rounds;
use tempfile::TempDir;

use super::{block_on, until_closed};

/// The contents of the file by the bodies: the beginning and the length of each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct MailboxSnapshot {
    present: BTreeSet<String>,
    dead: BTreeSet<String>,
    replies: BTreeSet<String>,
}

/// Shortens a body for people. All bodies have the same padding.
fn short(body: &[u8]) -> String {
    let text = std::str::from_utf8(body).expect("a text");
    let number = text.trim_end_matches('x');
    assert!(text[number.len()..].bytes().all(|byte| byte == b'x'), "the body has changed");
    format!("{number}+{}", text.len() - number.len())
}

/// Creates a directory in which syncs cost nothing, because the test itself makes the cut.
fn fast_dir() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a directory")
}

fn open(path: &Path, queue: &str) -> SqliteMailbox {
    SqliteOptions::new()
        .queue(queue)
        .vfs(VFS_NAME)
        .log_sync(Arc::new(RecordedSync))
        .open(path)
        .expect("a mailbox")
}

/// Uses a mailbox and records what should be in it after each operation.
struct CutSession<'a> {
    path: &'a Path,
    mailbox: SqliteMailbox,
    _replies: SqliteMailbox,
    padding: usize,
}

impl CutSession<'_> {
    fn step(&self, number: usize, state: &mut MailboxSnapshot, random: &mut SeededRandom) {
        let lease = ReceiveOptions::new().visibility_timeout(Duration::from_hours(1));
        let body = format!("{number} {}", "x".repeat(random.below(self.padding as u64 + 1) as usize));
        let take = || block_on(self.mailbox.receive(lease)).expect("a receive").into_iter().next();
        match random.below(8) {
            0..4 => {
                block_on(self.mailbox.send(body.clone().into(), SendOptions::new().reply_to("replies")))
                    .expect("a send");
                state.present.insert(short(body.as_bytes()));
            }
            choice => {
                let Some(message) = take() else { return };
                // A receive is a separate operation. It changes nothing that is visible after another boot.
                let body = short(&message.body);
                match choice {
                    4 => block_on(message.ack()).expect("an ack"),
                    5 => {
                        block_on(message.reply(&number)).expect("a reply");
                        state.replies.insert(short(number.to_string().as_bytes()));
                    }
                    6 => {
                        block_on(message.bury(DeadReason::Failed { error: "no".into() })).expect("a bury");
                        state.dead.insert(body.clone());
                    }
                    _ => {
                        block_on(message.nack(Duration::ZERO)).expect("a nack");
                        return;
                    }
                }
                state.present.remove(&body);
            }
        }
    }
}

/// Performs `steps` operations in each of `sessions` sessions. Returns the states after each operation.
fn work(
    dir: &Path,
    sessions: usize,
    steps: usize,
    padding: usize,
    random: &mut SeededRandom,
) -> Vec<MailboxSnapshot> {
    let path = dir.join("mail");
    let mark = dir.join("marks");
    let mut states = vec![MailboxSnapshot::default()];
    for session in 0..sessions {
        let session_of = CutSession {
            path: &path,
            mailbox: open(&path, "main"),
            _replies: open(&path, "replies"),
            padding,
        };
        for step in 0..steps {
            let mut state = states.last().expect("a state").clone();
            session_of.step(session * steps + step, &mut state, random);
            states.push(state);
            WriteLog::note(&mark, FileChange::Returned(states.len() - 1));
        }
        let path = session_of.path.to_owned();
        drop(session_of);
        until_closed(&path);
    }
    states
}

/// Returns what another boot finds in the file.
fn found(dir: &Path, boot: &str) -> Result<MailboxSnapshot, MailboxError> {
    let clock = Arc::new(SettableClock::of_another_boot(boot));
    let open = |queue: &str| {
        let options = SqliteOptions::new().queue(queue).clock(Arc::clone(&clock) as _);
        options.open(dir.join("mail"))
    };
    let (mailbox, replies) = (open("main")?, open("replies")?);
    let bodies = |messages: Vec<snakepit::mailbox::Message>| {
        messages.into_iter().map(|it| short(&it.body)).collect::<BTreeSet<_>>()
    };
    let dead = block_on(mailbox.dead_letters(1000))?;
    Ok(MailboxSnapshot {
        present: bodies(block_on(mailbox.peek(1000))?),
        dead: bodies(dead.into_iter().map(|letter| letter.message).collect()),
        replies: bodies(block_on(replies.peek(1000))?),
    })
}

/// A log of work in a mailbox, and the contents that it should have.
struct RecordedRun {
    dir: TempDir,
    log: Vec<WriteLogEntry>,
    states: Vec<MailboxSnapshot>,
    random: SeededRandom,
}

impl RecordedRun {
    fn of(sessions: usize, steps: usize, padding: usize) -> Self {
        install();
        let (dir, mut random) = (fast_dir(), SeededRandom::new(17));
        let states = work(dir.path(), sessions, steps, padding, &mut random);
        Self { log: WriteLog::of(dir.path()), dir, states, random }
    }

    /// Cuts the power after `at` entries. Returns what is wrong then, and how many changes were lost.
    fn cut(&mut self, at: usize) -> (Result<(), String>, usize) {
        let remains_dir = fast_dir();
        let files: Vec<WriteLogEntry> = self.log[..at]
            .iter()
            .filter(|entry| !matches!(entry.change, FileChange::Returned(_)))
            .cloned()
            .collect();
        let returned = self.log[..at].iter().rev().find_map(|entry| match entry.change {
            FileChange::Returned(number) => Some(number),
            _ => None,
        });
        let returned = returned.unwrap_or(0);
        let remains = DiskImage::after(&files, &mut self.random);
        remains.write(self.dir.path(), remains_dir.path());
        let state = match found(remains_dir.path(), &format!("boot {at}")) {
            Ok(state) => state,
            Err(error) => return (Err(format!("cut after {at}: {error}: {error:?}")), remains.lost),
        };
        // The operation that was under way may or may not be done.
        let before = &self.states[returned];
        let after = self.states.get(returned + 1).unwrap_or(before);
        if state == *before || state == *after {
            return (Ok(()), remains.lost);
        }
        let wrong = format!(
            "cut after {at} of {} entries, {returned} operations had returned:\n found {state:?}\n not {before:?}\n nor {after:?}",
            self.log.len(),
        );
        (Err(wrong), remains.lost)
    }

    /// Cuts the power about `cuts` times, spread over the log. With enough cuts, it cuts everywhere.
    fn cut_often(&mut self, cuts: usize) -> Vec<String> {
        let stride = (self.log.len() / cuts).max(1) as u64;
        let (mut at, mut lost, mut wrong) = (0, 0, Vec::new());
        while at <= self.log.len() {
            let (outcome, changes) = self.cut(at);
            lost += changes;
            wrong.extend(outcome.err());
            at += 1 + self.random.below(2 * stride - 1) as usize;
        }
        println!("{} entries, {} operations, {lost} changes lost", self.log.len(), self.states.len() - 1);
        assert!(lost > 10, "the cuts lost only {lost} changes");
        wrong
    }
}

#[test]
fn q9_what_was_reported_done_survives_a_power_cut_after_any_write() {
    let wrong = RecordedRun::of(rounds(3, 2), rounds(60, 20), 200).cut_often(rounds(100_000, 200));
    assert!(wrong.is_empty(), "{} cuts, the first: {}", wrong.len(), wrong[0]);
}

#[test]
fn q9_holds_when_the_log_is_long_and_goes_into_the_file_by_itself() {
    let wrong = RecordedRun::of(1, 60, 250_000).cut_often(rounds(400, 40));
    assert!(wrong.is_empty(), "{} cuts, the first: {}", wrong.len(), wrong[0]);
}

#[test]
fn q12_a_disk_that_lies_about_its_syncs_is_caught() {
    let mut recording = RecordedRun::of(2, 20, 200);
    recording.log.retain(|entry| !matches!(entry.change, FileChange::Sync));
    assert!(!recording.cut_often(60).is_empty(), "no cut has revealed it");
}

#[test]
fn after_an_error_of_the_disk_what_is_reported_done_survives_a_power_cut() {
    install();
    let (dir, mut random) = (fast_dir(), SeededRandom::new(23));
    let path = dir.path().join("mail");
    let mailbox = open(&path, "main");
    let send = |body: &str| block_on(mailbox.send(body.into(), SendOptions::new()));
    send("before").expect("it is sent");
    fail_syncs(Some(dir.path()));
    for _ in 0..3 {
        let error = send("doubtful").expect_err("it cannot be synced");
        assert!(matches!(error, MailboxError::Backend { .. }), "{error:?}");
        assert!(error.to_string().contains(path.to_str().expect("a text")), "{error}");
    }
    fail_syncs(None);
    send("after").expect("the disk works again");
    let log = WriteLog::of(dir.path());
    for boot in 0..50 {
        // A failed sync may have discarded what it could not write. In the log of the test, such writes are not synced.
        let remains_dir = fast_dir();
        DiskImage::after(&log, &mut random).write(dir.path(), remains_dir.path());
        let state = found(remains_dir.path(), &format!("boot {boot}")).expect("it can be opened");
        for body in ["before", "after"] {
            assert!(state.present.contains(&short(body.as_bytes())), "{body} is lost: {state:?}");
        }
    }
}
