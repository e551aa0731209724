//! Benchmarks of what supervision adds and costs: batches, recovery, reload, and adaptive concurrency.
//!
//! `bench-supervision` prints tables in Markdown. `--quick` takes few rounds. A word (`batching`, `recovery`, `reload`,
//! `adaptive`) selects a part. The runtime has one thread.

mod adaptive;
mod batching;
mod recovery;
mod reload;

use std::process::ExitCode;

use snakepit_bench::program::fail;
use snakepit_bench::{BenchResult, machine};

fn main() -> ExitCode {
    match tokio::runtime::Builder::new_current_thread().enable_all().build().map(|it| it.block_on(run())) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => fail("bench-supervision", &*error),
        Err(error) => fail("bench-supervision", &error),
    }
}

async fn run() -> BenchResult<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rounds = if words.iter().any(|word| word == "--quick") { 3 } else { 15 };
    let parts: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    println!("Machine: {}\n", machine::describe());
    if wanted("batching") {
        batching::run(rounds).await?;
    }
    if wanted("recovery") {
        recovery::run(rounds).await?;
    }
    if wanted("reload") {
        reload::run(rounds).await?;
    }
    if wanted("adaptive") {
        adaptive::run(rounds).await?;
    }
    Ok(())
}
