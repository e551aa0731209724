//! A pool behind a durable mailbox is killed in the middle of its work, and nothing is lost.
//!
//! `cargo run -p snakepit --features loops,sqlite --example survives` sends messages to a mailbox in a file and starts
//! a service for them (this program again). It kills the service with SIGKILL while it is busy, and starts another one.
//! In the end every message has been answered exactly once, because a reply and the completion of its request are one
//! transaction of the file.

#![expect(
    clippy::disallowed_methods,
    reason = "the service is a program that somebody else starts; its number is its own until it is waited for"
)]

use std::collections::BTreeMap;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use snakepit::loops::{LoopGroup, PoolLoop, PoolLoopOptions, RunOptions};
use snakepit::mailbox::{MAX_MESSAGES, Mailbox, ReceiveOptions, SendOptions, SqliteMailbox};
use snakepit::{Snakepit, python};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const MESSAGES: usize = 1_000;
/// The service is killed once so many messages are answered.
const ENOUGH: usize = 200;
/// What a killed service held is delivered again after this time. A living service extends it.
const LEASE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_mins(2);

#[tokio::main]
async fn main() -> Outcome<ExitCode> {
    match std::env::args().nth(1) {
        Some(file) => serve(&file).await,
        None => watch().await,
    }
}

/// The service: greets the people whom the messages name, and replies.
async fn serve(file: &str) -> Outcome<ExitCode> {
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.py");
    let pit = Snakepit::builder().pool(python(worker).workers(2)).start().await?;
    let requests = Arc::new(SqliteMailbox::open_named(file, "requests")?);
    let greets = PoolLoop::new(&pit, requests, &PoolLoopOptions::new("greet"))?;
    let group = LoopGroup::new("service").with(Arc::new(greets));
    let options = RunOptions::new().visibility_timeout(LEASE).shutdown_timeout(LEASE / 2);
    let end = group.run(options).await?;
    pit.stop().await;
    Ok(ExitCode::from(end.status))
}

/// The rest: sends, kills, starts again, and counts.
async fn watch() -> Outcome<ExitCode> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("mail.db");
    let requests = SqliteMailbox::open_named(&file, "requests")?;
    let replies = SqliteMailbox::open_named(&file, "replies")?;
    for number in 0..MESSAGES {
        let body = json!({ "name": format!("number {number}") }).to_string();
        requests.send(body.into_bytes(), SendOptions::new().reply_to("replies")).await?;
    }
    println!("sent {MESSAGES} messages");

    let start = || Command::new(std::env::current_exe()?).arg(&file).spawn();
    let mut answers = BTreeMap::new();
    let mut first = start()?;
    println!("process {} works on them", first.id());
    collect(&replies, &mut answers, ENOUGH).await?;
    first.kill()?;
    first.wait()?;
    let count = requests.count().await?;
    println!(
        "killed it with SIGKILL: {} were in its hands, {} had not been begun",
        count.in_flight, count.visible
    );

    let mut second = start()?;
    println!("process {} works on what is left", second.id());
    collect(&replies, &mut answers, MESSAGES).await?;
    end(&mut second)?;
    let (twice, count) = (answers.values().filter(|times| **times > 1).count(), requests.count().await?);
    println!("{} of {MESSAGES} messages are answered, {twice} of them twice; left: {count:?}", answers.len());
    let is_well =
        answers.len() == MESSAGES && twice == 0 && count == snakepit::mailbox::MessageCounts::default();
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Receives answers until there are so many different ones, and counts how often each has come.
async fn collect(replies: &SqliteMailbox, answers: &mut BTreeMap<String, u32>, enough: usize) -> Outcome<()> {
    let deadline = Instant::now() + PATIENCE;
    while answers.len() < enough {
        if Instant::now() > deadline {
            return Err(format!("only {} answers have come", answers.len()).into());
        }
        let receive = ReceiveOptions::new().max_messages(MAX_MESSAGES).wait(Duration::from_secs(1));
        for reply in replies.receive(receive).await? {
            *answers.entry(reply.read::<String>()?).or_default() += 1;
            reply.ack().await?;
        }
    }
    Ok(())
}

/// Ends the service like a service manager.
fn end(service: &mut Child) -> Outcome<()> {
    let pid = Pid::from_raw(service.id().try_into()?).ok_or("no process")?;
    kill_process(pid, Signal::TERM)?;
    let status = service.wait()?;
    if status.success() { Ok(()) } else { Err(format!("the service ended with {status}").into()) }
}
