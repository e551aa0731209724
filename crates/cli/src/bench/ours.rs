//! Ours: the engine with the program's own worker, called from tasks as a service would.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use snakepit::custody::{Config, Run};
use snakepit::value::Blob;
use snakepit::{CallError, Pool, PythonWorker, Snakepit, args};
use tokio::runtime::Runtime;

use super::{IN_FLIGHT, WORKERS, cannot};
use crate::say::Failure;

const WORKER: &str = include_str!("worker.py");

pub(super) struct Ours {
    runtime: Runtime,
    pit: Snakepit,
}

impl Ours {
    pub(super) fn start(config: Config) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| cannot(&error))?;
        // Gone again as soon as the workers have read it.
        let dir = tempfile::tempdir().map_err(|error| cannot(&error))?;
        let file = dir.path().join("worker.py");
        std::fs::write(&file, WORKER).map_err(|error| cannot(&error))?;
        let pool = Pool::python(PythonWorker::new(file).current_dir("/")).name("bench").workers(WORKERS);
        let start = Snakepit::builder().custody(config).pool(pool).start();
        let pit = runtime.block_on(start).map_err(|error| cannot(&error))?;
        Ok(Self { runtime, pit })
    }

    /// The interpreter, and what it is.
    pub(super) fn who(&self) -> Result<[String; 2], Failure> {
        let call = self.pit.call("who", ());
        self.runtime.block_on(call.into_future()).map_err(|error| cannot(&error))
    }

    pub(super) fn run(&self) -> Result<&Run, Failure> {
        self.pit.run().ok_or_else(|| Failure::plain("the engine has no processes"))
    }

    /// The time that each of so many calls took, one after another.
    pub(super) fn echoes(&self, bytes: usize, calls: usize) -> Result<Vec<Duration>, Failure> {
        self.wait(echoes(self.pit.clone(), bytes, calls))
    }

    /// The time that so many calls took, many at once.
    pub(super) fn many(&self, bytes: usize, calls: usize) -> Result<Duration, Failure> {
        let callers = IN_FLIGHT * WORKERS;
        let pit = self.pit.clone();
        self.wait(async move {
            let began = Instant::now();
            let each = calls.div_ceil(callers);
            let tasks: Vec<_> =
                (0..callers).map(|_| tokio::spawn(echoes(pit.clone(), bytes, each))).collect();
            for task in tasks {
                task.await.unwrap_or(Err(CallError::Stopped))?;
            }
            Ok(began.elapsed())
        })
    }

    /// The time that a stream of so many items took.
    pub(super) fn stream(&self, items: usize) -> Result<Duration, Failure> {
        let pit = self.pit.clone();
        self.wait(async move {
            let began = Instant::now();
            let mut stream = pit.stream::<u64>("count", args! { n: items }).open()?;
            while let Some(item) = stream.next().await {
                item?;
            }
            Ok(began.elapsed())
        })
    }

    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<T, Failure> {
        let done = self.runtime.block_on(self.runtime.spawn(work));
        done.unwrap_or(Err(CallError::Stopped)).map_err(|error| cannot(&error))
    }

    pub(super) fn stop(self) {
        self.runtime.block_on(self.pit.stop());
    }
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
