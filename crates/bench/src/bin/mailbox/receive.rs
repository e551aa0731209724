//! Receive ten, acknowledge ten, in one process, beside the same statements in plain SQL.

use std::path::Path;
use std::time::{Duration, Instant};

use snakepit::mailbox::{
    Mailbox, MailboxError, Message, Receipt, ReceiveOptions, SendOptions, SqliteMailbox,
};
use snakepit_bench::{BenchResult, SampleSet, SummaryRow};

use crate::{MailboxWork, floor};

/// The number of messages that are received and acknowledged together.
pub(crate) const BATCH: usize = 10;
const SHARE: f64 = 0.5;
const LEASE: Duration = Duration::from_mins(1);
const BODY: [u8; 100] = [b'x'; 100];

pub(crate) fn measure(work: MailboxWork) -> BenchResult<SummaryRow> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut ours, mut by_hand) = (SampleSet::default(), SampleSet::default());
    let messages = work.messages / 40 / BATCH * BATCH;
    for _ in 0..work.rounds {
        let dir = tempfile::tempdir()?;
        ours.push(runtime.block_on(by_mailbox(&dir.path().join("ours.db"), messages))?);
        by_hand.push(floor::receives(&dir.path().join("floor.db"), messages, BATCH, &BODY)?);
    }
    let what = "SQLite: receive ten, acknowledge ten, one after the other";
    Ok(SummaryRow::rates(what, &ours, "the same statements by hand, both durable", &by_hand, SHARE))
}

async fn by_mailbox(file: &Path, messages: usize) -> BenchResult<f64> {
    let mailbox = SqliteMailbox::open(file)?;
    mailbox.send_all(vec![(BODY.to_vec(), SendOptions::new()); messages]).await?;
    let options = ReceiveOptions::new().max_messages(BATCH).visibility_timeout(LEASE);
    let began = Instant::now();
    let mut acked = 0;
    while acked < messages {
        acked += acknowledge(&mailbox, &mailbox.receive(options).await?).await?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of messages")]
    Ok(messages as f64 / began.elapsed().as_secs_f64())
}

/// Acknowledges the messages and returns how many were still leased.
pub(crate) async fn acknowledge(mailbox: &dyn Mailbox, messages: &[Message]) -> Result<usize, MailboxError> {
    let receipts: Vec<Receipt> = messages.iter().filter_map(|message| message.receipt.clone()).collect();
    mailbox.ack_all(&receipts).await
}
