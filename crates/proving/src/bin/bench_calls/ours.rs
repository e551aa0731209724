//! Ours: the library behind the same questions that floors and peers answer. Nothing else here knows the library.
//!
//! Callers are tasks of a multi-threaded runtime, as in a service.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use snakepit::custody::Config;
use snakepit::value::Blob;
use snakepit::{Pool, PythonWorker, Snakepit, args};
use snakepit_proving::bench::Outcome;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::python::Python;
use crate::turns::{Caller, Laps, Pace, Start};

/// What speaks MessagePack in the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Codec {
    /// As it comes: `msgspec` is imported once it pays.
    Auto,
    /// `msgspec` from the start, which the benchmark's environment has.
    Msgspec,
    /// The SDK's own, as if `msgspec` could not be imported.
    Own,
}

/// How calls travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// Frames over an inherited socket.
    Socket,
    /// The gRPC adapter, which is compiled in with its peer.
    Grpc,
    /// Lines of JSON, to a worker without the SDK.
    Stdio,
    /// HTTP, to a worker of the standard library alone.
    Http,
}

impl Over {
    /// JSON has no bytes: the same number of letters travels instead.
    fn has_bytes(self) -> bool {
        matches!(self, Self::Socket | Self::Grpc)
    }
}

/// The pool that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) workers: usize,
    pub(crate) codec: Codec,
    pub(crate) over: Over,
}

/// A pool that is ready: every worker has said so. Dropping it stops it and waits until all is gone.
///
/// Its worker has three commands: `echo(data)` answers its bytes, `count(n)` streams the numbers below n, and
/// `tiny(number)` answers the next number.
pub(crate) trait Ours: Caller {
    /// Takes a stream of so many numbers from one worker, to its end.
    fn stream(&mut self, items: usize) -> Outcome<()>;

    /// So many `tiny` calls through `map`; all results are looked at.
    fn map(&mut self, calls: usize) -> Outcome<()>;

    /// The workers' own pids: not their shims'.
    fn worker_pids(&self) -> Outcome<Vec<i32>>;

    /// Changes the number of workers, and waits until they are there, or gone.
    fn scale(&mut self, workers: usize) -> Outcome<()>;
}

struct Engine {
    runtime: Runtime,
    pit: Snakepit,
    workers: usize,
    over: Over,
    _home: TempDir,
}

/// Starts a pool and waits until all its workers are ready.
pub(crate) fn start(python: &Python, shape: Shape) -> Outcome<Start<Box<dyn Ours>>> {
    let home = tempfile::tempdir()?;
    // Beside its peer, as its peer: what a second thread of the host costs a call is not what is compared there.
    let threads = match shape.over {
        Over::Grpc => 1,
        Over::Socket | Over::Stdio | Over::Http => 2,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let codec = match shape.codec {
        Codec::Msgspec if python.has("msgspec").is_ok() => "msgspec",
        Codec::Auto | Codec::Msgspec => "auto",
        Codec::Own => "python",
    };
    let worker = PythonWorker::new(Python::script("worker.py"))
        .interpreter(python.path())
        .env("SNAKEPIT_CODEC", codec);
    let Some(pool) = pool(python, worker, shape.over) else {
        return Ok(Start::Absent("not compiled in: --features peers".to_owned()));
    };
    let pool = pool.workers(shape.workers).queue_limit(1 << 20);
    let custody = Config { state_dir: Some(home.path().to_owned()), ..Config::default() };
    let pit = runtime.block_on(Snakepit::builder().pool(pool).custody(custody).start())?;
    Ok(Start::Here(Box::new(Engine { runtime, pit, workers: shape.workers, over: shape.over, _home: home })))
}

#[cfg_attr(
    feature = "peers",
    expect(clippy::unnecessary_wraps, reason = "without the peers there is none over gRPC")
)]
fn pool(python: &Python, worker: PythonWorker, over: Over) -> Option<Pool> {
    let plain = |script| [python.path().to_owned(), Python::script(script)];
    match over {
        Over::Socket => Some(Pool::python(worker)),
        Over::Stdio => Some(Pool::stdio(plain("stdio_echo.py")).concurrency(crate::who::WINDOW)),
        Over::Http => Some(Pool::http(plain("http_echo.py")).concurrency(crate::who::WINDOW)),
        #[cfg(feature = "peers")]
        Over::Grpc => Some(Pool::grpc(worker).concurrency(crate::who::WINDOW)),
        #[cfg(not(feature = "peers"))]
        Over::Grpc => None,
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.runtime.block_on(self.pit.stop());
    }
}

/// What can go wrong in a task.
type Sent<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// So many echoes, one after another, in a task of its own.
async fn echoes(pit: Snakepit, over: Over, bytes: usize, calls: usize) -> Sent<Vec<Duration>> {
    if over.has_bytes() {
        echoes_of(pit, Blob::from(vec![b'x'; bytes]), |echoed| echoed.len() == bytes, calls).await
    } else {
        echoes_of(pit, "x".repeat(bytes), |echoed| echoed.len() == bytes, calls).await
    }
}

async fn echoes_of<T: Serialize + DeserializeOwned + Send + 'static>(
    pit: Snakepit,
    data: T,
    is_whole: impl Fn(&T) -> bool,
    calls: usize,
) -> Sent<Vec<Duration>> {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let began = Instant::now();
        let echoed: T = pit.call("echo", args! { data: data }).await?;
        times.push(began.elapsed());
        if !is_whole(&echoed) {
            return Err("an echo has another length".into());
        }
    }
    Ok(times)
}

impl Caller for Engine {
    fn one(&mut self, bytes: usize, calls: usize) -> Outcome<Laps> {
        self.many(bytes, calls, 0)
    }

    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> Outcome<Laps> {
        let callers = (in_flight * self.workers).max(1);
        let (pit, over) = (self.pit.clone(), self.over);
        self.runtime.block_on(async move {
            let began = Instant::now();
            let tasks: Vec<_> = (0..callers)
                .map(|_| tokio::spawn(echoes(pit.clone(), over, bytes, calls / callers)))
                .collect();
            let mut times = Vec::with_capacity(calls);
            for task in tasks {
                times.extend(task.await?.map_err(|error| error.to_string())?);
            }
            Ok(Laps::new(began.elapsed(), times.iter().map(Duration::as_secs_f64)))
        })
    }

    fn pace(&self) -> Pace {
        match self.over {
            Over::Socket | Over::Stdio => Pace::Fast,
            Over::Grpc | Over::Http => Pace::Slow,
        }
    }
}

impl Ours for Engine {
    fn stream(&mut self, items: usize) -> Outcome<()> {
        let pit = self.pit.clone();
        let read = async move {
            let mut stream = pit.stream::<u64>("count", args! { n: items }).open()?;
            let mut expected = 0;
            while let Some(item) = stream.next().await {
                if item? != expected {
                    return Err("an item is missing".into());
                }
                expected += 1;
            }
            if expected == items as u64 { Sent::Ok(()) } else { Err("items are missing".into()) }
        };
        self.runtime
            .block_on(async move { tokio::spawn(read).await?.map_err(|error| error.to_string().into()) })
    }

    fn map(&mut self, calls: usize) -> Outcome<()> {
        let pit = self.pit.clone();
        let read = async move {
            let mut map = pit.map::<u64, _>("tiny", 0..calls as u64).in_order()?;
            let mut expected = 1;
            while let Some(value) = map.next().await {
                if value? != expected {
                    return Err("a value is not its own".into());
                }
                expected += 1;
            }
            if expected == calls as u64 + 1 { Sent::Ok(()) } else { Err("values are missing".into()) }
        };
        self.runtime
            .block_on(async move { tokio::spawn(read).await?.map_err(|error| error.to_string().into()) })
    }

    fn scale(&mut self, workers: usize) -> Outcome<()> {
        let pool = &self.pit.pools()[0];
        let pids = self.worker_pids()?;
        pool.scale(workers);
        self.runtime.block_on(pool.await_ready(Duration::from_mins(2)))?;
        if workers == 0 {
            pids.into_iter().try_for_each(gone)?;
        }
        Ok(())
    }

    fn worker_pids(&self) -> Outcome<Vec<i32>> {
        let status = self.pit.pools()[0].status();
        Ok(status.workers.iter().filter_map(|worker| Some(worker.pid?.as_raw())).collect())
    }
}

/// Waits for the end of a process that is not a child.
fn gone(pid: i32) -> Outcome<()> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or("pid 0")?;
    // One that is gone already has no descriptor.
    let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else {
        return Ok(());
    };
    rustix::event::poll(&mut [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)], None)?;
    Ok(())
}
