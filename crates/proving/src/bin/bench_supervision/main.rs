//! Benchmarks of what supervision adds and costs: batches, recovery, reload, and concurrency that is found out.
//!
//! `bench-supervision` prints tables in Markdown; `--quick` takes few rounds, a word (`batching`, `recovery`, `reload`,
//! `adaptive`) only that part. Its runtime has one thread, as the calls of `bench-calls` have.

mod adaptive;
mod batching;
mod recovery;
mod reload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use snakepit::{Pool, PythonWorker};
use snakepit_proving::bench::{Outcome, machine};

fn main() -> ExitCode {
    match tokio::runtime::Builder::new_current_thread().enable_all().build().map(|it| it.block_on(run())) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => fail(&*error),
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("bench-supervision: {error}");
    ExitCode::from(2)
}

async fn run() -> Outcome<()> {
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

/// Workers with the commands that are measured.
fn pool() -> Pool {
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/bench_supervision/worker.py");
    let python = std::env::var_os("SNAKEPIT_TEST_PYTHON").map_or_else(|| "python3".into(), PathBuf::from);
    Pool::python(PythonWorker::new(worker).interpreter(python)).name("bench")
}
