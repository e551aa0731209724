//! A service: it works until SIGTERM or Ctrl-C, finishes what is under way, and exits with 0. A second signal ends it
//! at once, with 128 + n.
//!
//! `cargo run -p snakepit --example graceful`

use std::io::{self, Write};
use std::process::ExitCode;

use snakepit::{CallError, ShutdownCoordinator, Snakepit, args, python};

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.py");
    let pit = Snakepit::builder().pool(python(worker).workers(2)).start().await?;

    // Signals are handled from here on, before the service announces itself.
    ShutdownCoordinator::install()?;
    let worker = tokio::spawn(work(pit.clone()));
    say(&format!("process {} works; end it with SIGTERM or Ctrl-C", std::process::id()));
    let status = pit.until_shutdown().await?;
    match worker.await? {
        Ok(naps) => say(&format!("naps: {naps}, and none was lost")),
        Err(error) => say(&format!("cut short: {error}")),
    }
    Ok(ExitCode::from(status))
}

/// Prints a line. Unlike `println!`, does not panic if the output has no reader any more.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Takes one nap after another, until the engine takes no more calls.
async fn work(pit: Snakepit) -> Result<u32, CallError> {
    let mut naps = 0;
    loop {
        match pit.call::<String>("nap", args! { seconds: 0.3 }).await {
            Ok(_) => naps += 1,
            Err(CallError::Stopped) => return Ok(naps),
            Err(error) => return Err(error),
        }
    }
}
