//! From a send that is done to the receiver that waited for it, in one process and across two.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use snakepit::mailbox::{Mailbox, MemoryMailbox, Receive, Send, SqliteMailbox};
use snakepit_proving::bench::line::verdict;
use snakepit_proving::bench::{Line, Outcome, Samples};

use crate::Effort;

const WITHIN: f64 = 200e-6;
const ACROSS: f64 = 500e-6;

pub(crate) fn measure(effort: Effort) -> Outcome<Vec<Line>> {
    let wakes = effort.rounds * 30;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let dir = tempfile::tempdir()?;
    let memory: Arc<dyn Mailbox> = Arc::new(MemoryMailbox::new("wake"));
    let file: Arc<dyn Mailbox> = Arc::new(SqliteMailbox::open(dir.path().join("one.db"))?);
    let row = |what: &str, samples: &Samples, limit: f64| {
        let met = samples.median() < limit;
        let verdict = verdict(met);
        let text = format!(
            "| {what} | {:.0} µs (p90 {:.0}) | – | – | < {:.0} µs: {verdict} |",
            samples.median() * 1e6,
            samples.quantile(0.9) * 1e6,
            limit * 1e6
        );
        Line { text, met }
    };
    Ok(vec![
        row("memory: send to receive", &runtime.block_on(within(memory, wakes))?, WITHIN),
        row("SQLite: send to receive in one process", &runtime.block_on(within(file, wakes))?, WITHIN),
        row(
            "SQLite: send to receive across processes",
            &runtime.block_on(across(&dir.path().join("two.db"), wakes))?,
            ACROSS,
        ),
        under_load(&runtime, &dir.path().join("busy.db"), wakes)?,
    ])
}

/// What it takes while another process keeps each core busy: the scheduler's turn, most of it.
fn under_load(runtime: &tokio::runtime::Runtime, file: &Path, wakes: usize) -> Outcome<Line> {
    let cores = std::thread::available_parallelism()?.get();
    let mut burners = Vec::new();
    for _ in 0..cores {
        burners.push(Burner(Command::new(std::env::current_exe()?).arg("--burn").spawn()?));
    }
    let samples = runtime.block_on(across(file, wakes))?;
    drop(burners);
    let text = format!(
        "| SQLite: send to receive across processes, each of {cores} cores busy | {:.0} µs (p90 {:.0}) | – | – | – |",
        samples.median() * 1e6,
        samples.quantile(0.9) * 1e6
    );
    Ok(Line { text, met: true })
}

/// Keeps a core busy for as long as whoever started this lives.
pub(crate) fn burn() {
    let parent = parent_id();
    while parent_id() == parent {
        (0..100_000).for_each(|_| std::hint::spin_loop());
    }
}

/// A process that does nothing, as fast as it can.
struct Burner(std::process::Child);

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Seconds of a clock that all processes share.
pub(crate) fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    #[expect(clippy::cast_precision_loss, reason = "microseconds are enough")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9;
    seconds
}

fn patient() -> Receive {
    Receive::new().wait(Duration::from_secs(20))
}

async fn within(mailbox: Arc<dyn Mailbox>, wakes: usize) -> Outcome<Samples> {
    let mut samples = Samples::default();
    for _ in 0..wakes {
        let receiver = {
            let mailbox = Arc::clone(&mailbox);
            tokio::spawn(async move {
                let received = mailbox.receive(patient()).await?;
                let at = now();
                for message in &received {
                    message.ack().await?;
                }
                Ok::<f64, snakepit::mailbox::MailboxError>(at)
            })
        };
        // It has looked and waits: nothing tells so from outside.
        tokio::time::sleep(Duration::from_millis(5)).await;
        mailbox.send(b"wake up".to_vec(), Send::new()).await?;
        let sent = now();
        samples.push((receiver.await?? - sent).max(0.0));
    }
    Ok(samples)
}

/// The other process says when it received each one.
async fn across(file: &Path, wakes: usize) -> Outcome<Samples> {
    let mailbox = SqliteMailbox::open(file)?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--answer")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let mut heard = || -> Outcome<String> { Ok(lines.next().ok_or("the receiver is gone")??) };
    let mut samples = Samples::default();
    heard()?;
    for _ in 0..wakes {
        tokio::time::sleep(Duration::from_millis(5)).await;
        mailbox.send(b"wake up".to_vec(), Send::new()).await?;
        let sent = now();
        samples.push((heard()?.parse::<f64>()? - sent).max(0.0));
    }
    mailbox.send(b"stop".to_vec(), Send::new()).await?;
    child.wait()?;
    Ok(samples)
}

/// Receives until it is told to stop, and prints when.
pub(crate) fn answer(file: &str) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mailbox = SqliteMailbox::open(file)?;
        let mut stdout = std::io::stdout();
        writeln!(stdout, "ready")?;
        loop {
            for message in mailbox.receive(patient()).await? {
                let at = now();
                message.ack().await?;
                if &message.body[..] == b"stop" {
                    return Ok(());
                }
                writeln!(stdout, "{at}")?;
            }
        }
    })
}
