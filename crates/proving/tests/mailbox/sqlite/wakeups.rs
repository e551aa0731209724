//! A waiting receiver is woken by its own process, by another process, and even by one that dies before it notifies
//! anyone.

use std::time::{Duration, Instant};

use snakepit::mailbox::sqlite::{BootClock, Clock};
use snakepit::mailbox::{Mailbox, ReceiveOptions, SendOptions, SqliteMailbox};

use super::mailer_process::MailerProcess;
use super::{block_on, dir};

const WAIT: Duration = Duration::from_secs(20);

fn body_with_the_time() -> Vec<u8> {
    (BootClock.since_boot().as_nanos() as u64).to_string().into_bytes()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_receiver_in_another_process_is_woken_at_once() {
    let dir = dir();
    let path = dir.path().join("mail");
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    let rounds = 100;
    let mut other = MailerProcess::start(&path, "receive", &[&rounds.to_string()], None);
    assert_eq!(other.line().as_deref(), Some("ready"));
    let mut times = Vec::new();
    for _ in 0..rounds {
        block_on(mailbox.send(body_with_the_time(), SendOptions::new())).expect("it is sent");
        let line = other.line().expect("it was received");
        let nanos = line.strip_prefix("took ").and_then(|nanos| nanos.parse().ok()).expect("a time");
        times.push(Duration::from_nanos(nanos));
    }
    println!("median of {rounds} wake-ups across processes: {:?}", median(times.clone()));
    // An idle machine needs far less. This limit only distinguishes a notification from a look every few seconds.
    assert!(median(times) < Duration::from_millis(100));
}

#[test]
fn a_receiver_in_the_same_process_is_woken_at_once() {
    let dir = dir();
    let mailbox = SqliteMailbox::open(dir.path().join("mail")).expect("a mailbox");
    let rounds = 100;
    let times = block_on(async {
        let mut times = Vec::new();
        for _ in 0..rounds {
            let receiver = mailbox.clone();
            let waiting = tokio::spawn(async move {
                let messages = receiver.receive(ReceiveOptions::new().wait(WAIT)).await.expect("a receive");
                (Instant::now(), messages)
            });
            tokio::task::yield_now().await;
            let began = Instant::now();
            mailbox.send(b"a".to_vec(), SendOptions::new()).await.expect("it is sent");
            let (woken, messages) = waiting.await.expect("no panic");
            times.push(woken.saturating_duration_since(began));
            messages[0].ack().await.expect("an ack");
        }
        times
    });
    println!("median of {rounds} wake-ups in one process, its sync included: {:?}", median(times.clone()));
    assert!(median(times) < Duration::from_millis(100));
}

#[test]
fn a_receive_can_get_a_message_sent_in_the_same_transaction() {
    let dir = dir();
    let mailbox = SqliteMailbox::open(dir.path().join("mail")).expect("a mailbox");
    let received = block_on(async {
        // The first send keeps the writer busy while the other two orders arrive, in this order.
        let (_, received, _) = tokio::join!(
            mailbox.send(b"first".to_vec(), SendOptions::new().delay(Duration::from_mins(5))),
            mailbox.receive(ReceiveOptions::new().wait(WAIT)),
            mailbox.send(b"second".to_vec(), SendOptions::new()),
        );
        received.expect("a receive")
    });
    assert_eq!(&received[0].body[..], b"second");
}

#[test]
fn a_commit_whose_notification_was_never_sent_is_found_by_polling() {
    let dir = dir();
    let path = dir.path().join("mail");
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    let began = Instant::now();
    let received = block_on(async {
        let receiver = mailbox.clone();
        let waiting = tokio::spawn(async move { receiver.receive(ReceiveOptions::new().wait(WAIT)).await });
        // The receiver waits once the writer answers a request that came after it.
        tokio::task::yield_now().await;
        mailbox.count().await.expect("a count");
        let mut other = MailerProcess::start(&path, "send", &["a"], Some("notify:kill"));
        assert_eq!(other.line(), None, "it was killed before it could tell");
        waiting.await.expect("no panic").expect("a receive")
    });
    assert_eq!(&received[0].body[..], b"a");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "the look came after {took:?}");
}

#[test]
fn an_idle_receiver_uses_almost_no_cpu_time() {
    let dir = dir();
    let mailbox = SqliteMailbox::open(dir.path().join("mail")).expect("a mailbox");
    let used = || {
        let usage = std::fs::read_to_string("/proc/self/stat").expect("what this process used");
        let fields: Vec<&str> = usage.rsplit(')').next().expect("fields").split_whitespace().collect();
        fields[11].parse::<u64>().expect("ticks") + fields[12].parse::<u64>().expect("ticks")
    };
    let before = used();
    let received =
        block_on(mailbox.receive(ReceiveOptions::new().wait(Duration::from_secs(4)))).expect("a receive");
    assert!(received.is_empty());
    let ticks = used() - before;
    assert!(ticks <= 5, "{ticks} hundredths of a second in four");
}

#[test]
fn a_removed_notification_file_is_created_again() {
    let dir = dir();
    let path = dir.path().join("mail");
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    std::fs::remove_file(dir.path().join("mail-bell")).expect("a bell");
    block_on(async {
        let receiver = mailbox.clone();
        let waiting = tokio::spawn(async move { receiver.receive(ReceiveOptions::new().wait(WAIT)).await });
        let mut other = MailerProcess::start(&path, "send", &["a"], None);
        assert!(other.line().expect("an answer").starts_with("sent"));
        assert_eq!(waiting.await.expect("no panic").expect("a receive").len(), 1);
    });
}
