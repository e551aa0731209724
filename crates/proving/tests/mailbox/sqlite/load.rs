//! Many concurrent clients, and many messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use snakepit::mailbox::{Mailbox, ReceiveOptions, SendOptions, SqliteMailbox};
use snakepit::mailbox_conformance::load::{self, ClientLoad};
use snakepit::mailbox_conformance::{FinalState, History, Rule, Terms, check};
use snakepit_proving::{random, rounds};

use super::{block_on, dir, until_closed};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_producers_and_four_consumers_of_ten_thousand_messages_each_lose_nothing() {
    let dir = dir();
    let mailbox: Arc<dyn Mailbox> =
        Arc::new(SqliteMailbox::open(dir.path().join("mail")).expect("a mailbox"));
    let history = History::new();
    let seed = random::below(u64::MAX);
    println!("seed {seed}");
    let (lease, patience) = (Duration::from_millis(500), Duration::from_mins(5));
    let load =
        ClientLoad { producers: 4, consumers: 4, messages: rounds(10_000, 300), lease, seed, patience };
    load::run(&history, &mailbox, load).await.expect("the mailbox works");
    let ending = FinalState::of(&history, mailbox.as_ref()).await.expect("it can be looked at");
    let events = history.events();
    let report = check(&events, &ending, Terms { max_deliveries: 5, slack: Duration::from_millis(5) });
    println!("{} events, {} dead letters, {:?}", events.len(), ending.dead.len(), report.fired);
    // Power cuts and jumps of the clock have their own tests.
    report.assert_clean(&[Rule::Q9, Rule::Q10]);
}

/// Fills the file. Most messages are leased, delayed or dead, so a search for visible ones would have to pass them.
fn fill(path: &std::path::Path, messages: usize) {
    let file = Connection::open(path).expect("the file");
    file.execute_batch(&format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {messages})
         INSERT INTO message (queue, state, due, lease, deliveries, priority, grave, died, reason, sent, id, body)
         SELECT (SELECT number FROM queue WHERE name = 'main'), i % 4,
             CASE WHEN i % 4 IN (1, 2) THEN 1 << 60 END, 1, 1, 0, CASE WHEN i % 4 = 3 THEN i END, 0, '\"expired\"', 0,
             randomblob(16), x'00'
         FROM n;
         DELETE FROM tally;
         INSERT INTO tally SELECT queue, state, count(*) FROM message GROUP BY queue, state"
    ))
    .expect("messages");
}

#[test]
fn with_a_million_messages_no_operation_scans_the_table() {
    let dir = dir();
    let path = dir.path().join("mail");
    let cycle = |mailbox: &SqliteMailbox| {
        let began = Instant::now();
        block_on(mailbox.send(b"a".to_vec(), SendOptions::new().priority(1))).expect("it is sent");
        let messages = block_on(mailbox.receive(ReceiveOptions::new())).expect("a receive");
        block_on(messages[0].extend(Duration::from_mins(6))).expect("an extension");
        block_on(messages[0].nack(Duration::ZERO)).expect("a nack");
        block_on(mailbox.peek(1)).expect("a peek");
        block_on(mailbox.count()).expect("a count");
        let messages = block_on(mailbox.receive(ReceiveOptions::new())).expect("a receive");
        assert_eq!(&messages[0].body[..], b"a");
        block_on(messages[0].ack()).expect("an ack");
        began.elapsed()
    };
    let median = |mailbox: &SqliteMailbox| {
        let mut times: Vec<Duration> = (0..21).map(|_| cycle(mailbox)).collect();
        times.sort_unstable();
        times[10]
    };
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    let with_none = median(&mailbox);
    drop(mailbox);
    until_closed(&path);
    fill(&path, rounds(1_000_000, 200_000));
    let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
    let with_many = median(&mailbox);
    println!("eight operations: {with_none:?} with no messages, {with_many:?} with many");
    assert!(with_many < with_none * 10, "{with_none:?} with no messages, {with_many:?} with many");
}
