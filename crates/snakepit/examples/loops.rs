//! A pool behind a durable mailbox: it works until SIGTERM or Ctrl-C, finishes what is in flight, gives the rest back,
//! and exits with 0. A second signal cancels what is in flight, gives that back, too, and exits with 128 + n.
//!
//! `cargo run -p snakepit --features sqlite,loops --example loops -- mail.db`, and in another shell
//! `snakepit mailbox send sqlite:mail.db#requests '{"seconds": 1}'`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use snakepit::lifecycle::{ShutdownCoordinator, Stage};
use snakepit::loops::{LoopGroup, PoolLoop, PoolLoopOptions, RunOptions, Watchdog};
use snakepit::mailbox::SqliteMailbox;
use snakepit::{Snakepit, python};

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "mail.db".into());
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.py");
    let pit = Snakepit::builder().pool(python(worker).workers(2)).start().await?;

    let requests = Arc::new(SqliteMailbox::open_named(&path, "requests")?);
    // The mailbox for the replies is in the same file.
    let _replies = SqliteMailbox::open_named(&path, "replies")?;
    let naps = PoolLoop::new(&pit, requests, &PoolLoopOptions::new("nap"))?;
    let group = LoopGroup::new("service").with(Arc::new(naps)).watchdog(Watchdog::new());

    let drains = ShutdownCoordinator::install()?.reached(Stage::Draining { signal: None });
    tokio::spawn(async move {
        drains.await;
        say("draining");
    });
    say(&format!("process {} works on {path}; end it with SIGTERM or Ctrl-C", std::process::id()));
    let end = group.run(RunOptions::new()).await?;
    pit.stop().await;
    Ok(ExitCode::from(end.status))
}

/// Prints a line. Unlike `println!`, does not panic if the output has no reader any more.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
