//! A count and a receive with ten million messages in the file, beside the same with none.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use snakepit::mailbox::{Mailbox, ReceiveOptions, SendOptions, SqliteMailbox};
use snakepit_bench::summary::verdict;
use snakepit_bench::{BenchResult, SampleSet, SummaryRow};

use crate::receive::acknowledge;

/// How many times as long they may take.
const TIMES: f64 = 3.0;
const ROUNDS: usize = 101;

pub(crate) fn measure(messages: usize) -> BenchResult<Vec<SummaryRow>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("deep.db");
    let [counts, receives] = runtime.block_on(times(&file))?;
    fill(&file, messages)?;
    let [deep_counts, deep_receives] = runtime.block_on(times(&file))?;
    let row = |what: &str, deep: &SampleSet, flat: &SampleSet| {
        let ratio = deep.median() / flat.median();
        let met = ratio < TIMES;
        let [deep, flat] = [deep, flat].map(|samples| samples.median() * 1e6);
        let text = format!(
            "| SQLite: {what} with {messages} messages in the file | {deep:.0} µs | with none: {flat:.0} µs | {ratio:.2} × | < {TIMES} ×: {} |",
            verdict(met)
        );
        SummaryRow { text, met }
    };
    Ok(vec![
        row("count", &deep_counts, &counts),
        row("send one, receive ten, acknowledge", &deep_receives, &receives),
    ])
}

async fn times(file: &Path) -> BenchResult<[SampleSet; 2]> {
    let mailbox = SqliteMailbox::open(file)?;
    let (mut counts, mut receives) = (SampleSet::default(), SampleSet::default());
    let options = ReceiveOptions::new().max_messages(10).visibility_timeout(Duration::from_mins(1));
    for _ in 0..ROUNDS {
        let began = Instant::now();
        mailbox.count().await?;
        counts.push(began.elapsed().as_secs_f64());
        let began = Instant::now();
        mailbox.send(vec![b'x'; 100], SendOptions::new().priority(1)).await?;
        let received = mailbox.receive(options).await?;
        acknowledge(&mailbox, &received).await?;
        receives.push(began.elapsed().as_secs_f64());
    }
    Ok([counts, receives])
}

/// Fills the file with messages of every state: visible, delayed, leased and dead.
fn fill(file: &Path, messages: usize) -> BenchResult<()> {
    let connection = Connection::open(file)?;
    connection.pragma_update(None, "synchronous", "off")?;
    connection.execute_batch(&format!(
        "BEGIN;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {messages})
         INSERT INTO message (queue, state, due, lease, deliveries, priority, grave, died, reason, sent, id, body)
         SELECT (SELECT number FROM queue WHERE name = 'main'), i % 4, CASE WHEN i % 4 IN (1, 2) THEN 1 << 60 END, 1, 1, 0,
             CASE WHEN i % 4 = 3 THEN i END, 0, '\"expired\"', 0, randomblob(16), zeroblob(100)
         FROM n;
         DELETE FROM tally;
         INSERT INTO tally SELECT queue, state, count(*) FROM message GROUP BY queue, state;
         COMMIT;"
    ))?;
    Ok(())
}
