//! The time from a send to the wake-up of a waiting receiver, within one process and across two.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use snakepit::mailbox::{Mailbox, MemoryMailbox, ReceiveOptions, SendOptions, SqliteMailbox};
use snakepit_bench::summary::verdict;
use snakepit_bench::time::shared_seconds;
use snakepit_bench::{BenchResult, SampleSet, SummaryRow};

use crate::MailboxWork;

const WITHIN: f64 = 200e-6;
const ACROSS: f64 = 500e-6;

pub(crate) fn measure(work: MailboxWork) -> BenchResult<Vec<SummaryRow>> {
    let wakes = work.rounds * 30;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let dir = tempfile::tempdir()?;
    let memory: Arc<dyn Mailbox> = Arc::new(MemoryMailbox::new("wake"));
    let file: Arc<dyn Mailbox> = Arc::new(SqliteMailbox::open(dir.path().join("one.db"))?);
    let row = |what: &str, samples: &SampleSet, limit: f64| {
        let met = samples.median() < limit;
        let verdict = verdict(met);
        let text = format!(
            "| {what} | {:.0} µs (p90 {:.0}) | – | – | < {:.0} µs: {verdict} |",
            samples.median() * 1e6,
            samples.quantile(0.9) * 1e6,
            limit * 1e6
        );
        SummaryRow { text, met }
    };
    Ok(vec![
        row("memory: send to receive", &runtime.block_on(within(memory, wakes))?, WITHIN),
        row("SQLite: send to receive in one process", &runtime.block_on(within(file, wakes))?, WITHIN),
        row(
            "SQLite: from the call of send to receive, across processes",
            &runtime.block_on(across(&dir.path().join("two.db"), wakes))?,
            ACROSS,
        ),
        under_load(&runtime, &dir.path().join("busy.db"), wakes)?,
    ])
}

/// Measures the same while another process keeps each core busy. Most of the time is then spent waiting for a core.
fn under_load(runtime: &tokio::runtime::Runtime, file: &Path, wakes: usize) -> BenchResult<SummaryRow> {
    let cores = std::thread::available_parallelism()?.get();
    let mut busy = Vec::new();
    for _ in 0..cores {
        busy.push(BusyProcess(Command::new(std::env::current_exe()?).arg("--burn").spawn()?));
    }
    let samples = runtime.block_on(across(file, wakes))?;
    drop(busy);
    let text = format!(
        "| SQLite: from the call of send to receive, across processes, each of {cores} cores busy | {:.0} µs (p90 {:.0}) | – | – | – |",
        samples.median() * 1e6,
        samples.quantile(0.9) * 1e6
    );
    Ok(SummaryRow { text, met: true })
}

/// Keeps a core busy for as long as the parent process lives.
pub(crate) fn stay_busy() {
    let parent = parent_id();
    while parent_id() == parent {
        (0..100_000).for_each(|_| std::hint::spin_loop());
    }
}

/// A process that keeps a core busy.
struct BusyProcess(std::process::Child);

impl Drop for BusyProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn patient() -> ReceiveOptions {
    ReceiveOptions::new().wait(Duration::from_secs(20))
}

async fn within(mailbox: Arc<dyn Mailbox>, wakes: usize) -> BenchResult<SampleSet> {
    let mut samples = SampleSet::default();
    for _ in 0..wakes {
        let receiver = {
            let mailbox = Arc::clone(&mailbox);
            tokio::spawn(async move {
                let received = mailbox.receive(patient()).await?;
                let at = shared_seconds();
                for message in &received {
                    message.ack().await?;
                }
                Ok::<f64, snakepit::mailbox::MailboxError>(at)
            })
        };
        // The receiver waits by now, but no event reports that from outside.
        tokio::time::sleep(Duration::from_millis(5)).await;
        mailbox.send(b"wake up".to_vec(), SendOptions::new()).await?;
        let sent = shared_seconds();
        samples.push((receiver.await?? - sent).max(0.0));
    }
    Ok(samples)
}

/// Sends to another process, which reports when it received each message.
async fn across(file: &Path, wakes: usize) -> BenchResult<SampleSet> {
    let mailbox = SqliteMailbox::open(file)?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--answer")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let mut heard = || -> BenchResult<String> { Ok(lines.next().ok_or("the receiver is gone")??) };
    let mut samples = SampleSet::default();
    heard()?;
    for _ in 0..wakes {
        tokio::time::sleep(Duration::from_millis(5)).await;
        // Taken before the send, because the receiver may have the message before the sender knows that it is on the
        // disk.
        let sent = shared_seconds();
        mailbox.send(b"wake up".to_vec(), SendOptions::new()).await?;
        samples.push((heard()?.parse::<f64>()? - sent).max(0.0));
    }
    mailbox.send(b"stop".to_vec(), SendOptions::new()).await?;
    child.wait()?;
    Ok(samples)
}

/// Receives until a stop message comes, and prints the time of each message.
pub(crate) fn answer(file: &str) -> BenchResult<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mailbox = SqliteMailbox::open(file)?;
        let mut stdout = std::io::stdout();
        writeln!(stdout, "ready")?;
        loop {
            for message in mailbox.receive(patient()).await? {
                let at = shared_seconds();
                message.ack().await?;
                if &message.body[..] == b"stop" {
                    return Ok(());
                }
                writeln!(stdout, "{at}")?;
            }
        }
    })
}
