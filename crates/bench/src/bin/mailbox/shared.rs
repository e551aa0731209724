//! Four sending and four receiving processes on one file, beside the same in plain SQL.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use snakepit::mailbox::{Mailbox, ReceiveOptions, SendOptions, SqliteMailbox};
use snakepit_bench::summary::verdict;
use snakepit_bench::time::shared_seconds;
use snakepit_bench::{BenchResult, SampleSet, SummaryRow};

use crate::receive::{BATCH, acknowledge};
use crate::{MailboxWork, floor};

const SENDERS: usize = 4;
const RECEIVERS: usize = 4;
/// Messages per second that are sent, received and acknowledged.
const RATE: f64 = 5_000.0;
pub(crate) const BODY: [u8; 100] = [b'x'; 100];
const STOP: &[u8] = b"stop";

pub(crate) fn measure(work: MailboxWork) -> BenchResult<SummaryRow> {
    let each = work.messages / 80;
    let (mut ours, mut by_hand) = (SampleSet::default(), SampleSet::default());
    for _ in 0..work.rounds.min(5) {
        let dir = tempfile::tempdir()?;
        ours.push(round(&dir.path().join("ours.db"), each, ["send", "receive"])?);
        by_hand.push(round(&dir.path().join("floor.db"), each, ["send-by-hand", "receive-by-hand"])?);
    }
    let met = ours.median() >= RATE;
    let text = format!(
        "| SQLite: {SENDERS} senders one by one, {RECEIVERS} receivers by tens, {} processes on one file | {:.0}/s | the same statements by \
         hand, SQLite's own waits: {:.0}/s | {:.2} × | ≥ {RATE:.0}/s: {} |",
        SENDERS + RECEIVERS,
        ours.median(),
        by_hand.median(),
        ours.median() / by_hand.median(),
        verdict(met)
    );
    Ok(SummaryRow { text, met })
}

struct RoleProcess {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl RoleProcess {
    fn start(verb: &str, file: &Path, number: usize) -> BenchResult<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(format!("--{verb}"))
            .arg(file)
            .arg(number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let to = child.stdin.take().ok_or("no input")?;
        let from = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, to, from })
    }

    fn line(&mut self) -> BenchResult<String> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            return Err("a process of the benchmark has ended early".into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for RoleProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn round(file: &Path, each: usize, [send, receive]: [&str; 2]) -> BenchResult<f64> {
    let part = |verb: &str, number| RoleProcess::start(verb, file, number);
    let mut parts = vec![part(receive, 0)?];
    // The first receiver creates the file.
    parts[0].line()?;
    for _ in 1..RECEIVERS {
        parts.push(part(receive, 0)?);
    }
    for _ in 0..SENDERS {
        parts.push(part(send, each)?);
    }
    for part in &mut parts[1..] {
        part.line()?;
    }
    let began = shared_seconds();
    for part in &mut parts {
        part.to.write_all(b"go\n")?;
    }
    for sender in &mut parts[RECEIVERS..] {
        sender.line()?;
    }
    let mut stopper = part(if send == "send" { "stop" } else { "stop-by-hand" }, RECEIVERS)?;
    stopper.line()?;
    stopper.to.write_all(b"go\n")?;
    let mut ended = began;
    for receiver in &mut parts[..RECEIVERS] {
        ended = receiver.line()?.parse::<f64>()?.max(ended);
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of messages")]
    Ok((each * SENDERS) as f64 / (ended - began))
}

/// Runs one of the processes.
pub(crate) fn part(verb: &str, file: &str, number: usize) -> BenchResult<()> {
    let file = Path::new(file);
    let ready = || -> BenchResult<()> {
        writeln!(std::io::stdout(), "ready")?;
        std::io::stdin().read_line(&mut String::new())?;
        Ok(())
    };
    let done = |at: f64| -> BenchResult<()> { Ok(writeln!(std::io::stdout(), "{at}")?) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match verb {
        "--send-by-hand" => {
            let connection = floor::open(file)?;
            ready()?;
            floor::send(&connection, number, &BODY)?;
            done(shared_seconds())
        }
        "--receive-by-hand" => {
            let connection = floor::open(file)?;
            ready()?;
            done(floor::receive_until_stopped(&connection, BATCH)?)
        }
        "--stop-by-hand" => {
            let connection = floor::open(file)?;
            ready()?;
            floor::send_last(&connection, number, STOP)
        }
        _ => runtime.block_on(async {
            let mailbox = SqliteMailbox::open(file)?;
            ready()?;
            match verb {
                "--send" => {
                    for _ in 0..number {
                        mailbox.send(BODY.to_vec(), SendOptions::new()).await?;
                    }
                    done(shared_seconds())
                }
                "--stop" => {
                    for _ in 0..number {
                        mailbox.send(STOP.to_vec(), SendOptions::new().priority(-1)).await?;
                    }
                    Ok(())
                }
                _ => done(receive_until_stopped(&mailbox).await?),
            }
        }),
    }
}

/// Returns when the last message was acknowledged.
async fn receive_until_stopped(mailbox: &SqliteMailbox) -> BenchResult<f64> {
    let options = ReceiveOptions::new().max_messages(BATCH).wait(Duration::from_secs(20));
    let mut last = shared_seconds();
    loop {
        let mut messages = mailbox.receive(options).await?;
        let stops: Vec<_> = messages.extract_if(.., |message| &message.body[..] == STOP).collect();
        if !messages.is_empty() {
            acknowledge(mailbox, &messages).await?;
            last = shared_seconds();
        }
        if let [own, others @ ..] = &stops[..] {
            own.ack().await?;
            let others: Vec<_> = others.iter().filter_map(|message| message.receipt.clone()).collect();
            mailbox.release(&others).await?;
            return Ok(last);
        }
    }
}
