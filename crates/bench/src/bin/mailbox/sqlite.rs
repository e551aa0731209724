//! Durable sends, beside the same inserts in plain SQL, and beside the peer.

use std::sync::Arc;
use std::time::Instant;

use snakepit::mailbox::{Mailbox, SendOptions, SqliteMailbox};
use snakepit_bench::{BenchResult, SampleSet, SummaryRow};
use tokio::task::JoinSet;

use crate::{MailboxWork, floor, peer};

/// The number of concurrent senders, and of messages per transaction of the floor.
const SENDERS: usize = 64;
const SHARE: f64 = 0.5;
const TIMES_THE_PEER: f64 = 20.0;
const BODY: [u8; 100] = [b'x'; 100];

pub(crate) fn measure(work: MailboxWork) -> BenchResult<Vec<SummaryRow>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (mut ours, mut by_hand, mut theirs) =
        (SampleSet::default(), SampleSet::default(), SampleSet::default());
    let messages = work.messages / 10;
    let mut absent = None;
    for _ in 0..work.rounds {
        let dir = tempfile::tempdir()?;
        ours.push(runtime.block_on(sends(&dir.path().join("ours.db"), messages))?);
        by_hand.push(floor::inserts(&dir.path().join("floor.db"), messages, SENDERS, &BODY)?);
        match peer::sends(dir.path(), messages / 20)? {
            Ok(rate) => theirs.push(rate),
            Err(why) => absent = Some(why),
        }
    }
    let what = format!("SQLite: durable sends of {SENDERS} senders");
    let beside = format!("inserts by hand, {SENDERS} in a transaction");
    let mut rows = vec![SummaryRow::rates(&what, &ours, &beside, &by_hand, SHARE)];
    rows.push(match absent {
        Some(why) => SummaryRow::alone(&what, &ours, &why),
        None => SummaryRow::rates(
            &what,
            &ours,
            "weakincentives over Redis (appendfsync always)",
            &theirs,
            TIMES_THE_PEER,
        ),
    });
    Ok(rows)
}

async fn sends(file: &std::path::Path, messages: usize) -> BenchResult<f64> {
    let mailbox = Arc::new(SqliteMailbox::open(file)?);
    let began = Instant::now();
    let mut senders = JoinSet::new();
    for _ in 0..SENDERS {
        let mailbox = Arc::clone(&mailbox);
        senders.spawn(async move {
            for _ in 0..messages / SENDERS {
                mailbox.send(BODY.to_vec(), SendOptions::new()).await?;
            }
            Ok::<(), snakepit::mailbox::MailboxError>(())
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of messages")]
    let sent = (messages / SENDERS * SENDERS) as f64;
    Ok(sent / began.elapsed().as_secs_f64())
}
