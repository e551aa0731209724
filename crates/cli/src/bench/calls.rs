//! Measures the engine with the program's own worker. The calls come from tasks, as in a service.

use std::error::Error;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use snakepit::adapter::PythonWorker;
use snakepit::custody::CustodyOptions;
use snakepit::value::Blob;
use snakepit::{CallError, Snakepit, args};

use super::{IN_FLIGHT, WORKERS};

const WORKER: &str = include_str!("worker.py");

pub(super) async fn start(config: CustodyOptions) -> Result<Snakepit, Box<dyn Error>> {
    // The file is removed once the workers have read it.
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("worker.py");
    std::fs::write(&file, WORKER)?;
    let pool = snakepit::python(PythonWorker::new(file).current_dir("/")).name("bench").workers(WORKERS);
    Ok(Snakepit::builder().custody(config).pool(pool).start().await?)
}

/// Makes `calls` calls one after another and returns the time of each.
pub(super) async fn one_by_one(
    pit: &Snakepit,
    bytes: usize,
    calls: usize,
) -> Result<Vec<Duration>, CallError> {
    in_task(echoes(pit.clone(), bytes, calls)).await
}

/// Makes `calls` calls, many at once, and returns the total time.
pub(super) async fn many(pit: &Snakepit, bytes: usize, calls: usize) -> Result<Duration, CallError> {
    let callers = IN_FLIGHT * WORKERS;
    let pit = pit.clone();
    in_task(async move {
        let began = Instant::now();
        let each = calls.div_ceil(callers);
        let tasks: Vec<_> = (0..callers).map(|_| tokio::spawn(echoes(pit.clone(), bytes, each))).collect();
        for task in tasks {
            task.await.unwrap_or(Err(CallError::Stopped))?;
        }
        Ok(began.elapsed())
    })
    .await
}

/// Returns the time of a stream of `items` items.
pub(super) async fn stream(pit: &Snakepit, items: usize) -> Result<Duration, CallError> {
    let pit = pit.clone();
    in_task(async move {
        let began = Instant::now();
        let mut stream = pit.stream::<u64>("count", args! { n: items }).open()?;
        while let Some(item) = stream.next().await {
            item?;
        }
        Ok(began.elapsed())
    })
    .await
}

async fn in_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, CallError>> + Send + 'static,
) -> Result<T, CallError> {
    tokio::spawn(work).await.unwrap_or(Err(CallError::Stopped))
}

async fn echoes(pit: Snakepit, bytes: usize, calls: usize) -> Result<Vec<Duration>, CallError> {
    let data = Blob::from(vec![b'x'; bytes]);
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let began = Instant::now();
        let _: Blob = pit.call("echo", args! { data: data }).await?;
        times.push(began.elapsed());
    }
    Ok(times)
}
