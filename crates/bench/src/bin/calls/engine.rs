//! Snakepit as a participant. No other file of this program uses the library.
//!
//! Callers are tasks of a multi-threaded runtime, as in a service.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use snakepit::adapter::http::{HttpWorker, Readiness, Route};
use snakepit::adapter::{Program, PythonWorker};
use snakepit::custody::CustodyOptions;
use snakepit::value::Blob;
use snakepit::{PoolOptions, Snakepit, args};
use snakepit_bench::{BenchResult, TaskResult};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::peer::mosec;
use crate::python::BenchPython;
use crate::turns::{Availability, CallPace, CallTimes, EchoCaller};

/// The MessagePack codec of the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Codec {
    /// The default: `msgspec` is imported once it pays off.
    Auto,
    /// `msgspec` from the start, if the interpreter has it.
    Msgspec,
    /// The SDK's own codec, as if `msgspec` could not be imported.
    Own,
}

/// How calls travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallTransport {
    /// Frames over an inherited socket.
    Socket,
    /// The gRPC adapter, which is compiled in together with its peer.
    Grpc,
    /// Lines of JSON, to a worker without the SDK that reads and writes them with msgspec.
    Stdio,
    /// The same with Python's own json.
    StdioOwnJson,
    /// HTTP, to a worker that takes and returns bytes.
    Http,
    /// HTTP, to Python's `http.server`, with JSON.
    HttpServer,
    /// HTTP, to the peer's server.
    Mosec,
}

impl CallTransport {
    /// Reports whether the transport carries bytes. JSON has none, so the other transports carry the same number of
    /// letters.
    fn has_bytes(self) -> bool {
        match self {
            Self::Socket | Self::Grpc | Self::Http | Self::Mosec => true,
            Self::Stdio | Self::StdioOwnJson | Self::HttpServer => false,
        }
    }

    /// Reports whether calls need connections, which the pool gives up when nobody has called for two seconds. The
    /// connections of the peers stay.
    fn connects(self) -> bool {
        matches!(self, Self::Http | Self::HttpServer | Self::Mosec)
    }
}

/// The setup of the measured pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolShape {
    pub(crate) workers: usize,
    pub(crate) codec: Codec,
    pub(crate) over: CallTransport,
}

/// A pool whose workers are all ready. Dropping it stops the engine and waits until every process has ended.
///
/// Its worker has four commands: `echo(data)` returns its bytes, `echo_together(data)` does so for a list of calls,
/// `count(n)` streams the numbers below n, and `tiny(number)` returns the next number.
pub(crate) trait MeasuredPool: EchoCaller {
    /// Does what [`EchoCaller::many`] does, with the command that takes many calls at a time.
    fn together(&mut self, bytes: usize, calls: usize, in_flight: usize) -> BenchResult<CallTimes>;

    /// Reads a stream of `items` numbers from one worker to its end.
    fn stream(&mut self, items: usize) -> BenchResult<()>;

    /// Makes `calls` calls of `tiny` through `map` and checks every result.
    fn map(&mut self, calls: usize) -> BenchResult<()>;

    /// Returns the pids of the workers, not of their shims.
    fn worker_pids(&self) -> BenchResult<Vec<i32>>;

    /// Changes the number of workers and waits until they are ready or have ended.
    fn scale(&mut self, workers: usize) -> BenchResult<()>;
}

struct RunningEngine {
    runtime: Runtime,
    pit: Snakepit,
    workers: usize,
    over: CallTransport,
    _home: TempDir,
}

/// Starts a pool and waits until all its workers are ready.
pub(crate) fn start(
    python: &BenchPython,
    shape: PoolShape,
) -> BenchResult<Availability<Box<dyn MeasuredPool>>> {
    let home = tempfile::tempdir()?;
    // The peer's client runs on one thread, and a second thread would make each call slower.
    let threads = match shape.over {
        CallTransport::Grpc => 1,
        _ => 2,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let codec = match shape.codec {
        Codec::Msgspec if python.has("msgspec").is_ok() => "msgspec",
        Codec::Auto | Codec::Msgspec => "auto",
        Codec::Own => "python",
    };
    let worker = PythonWorker::new(BenchPython::script("worker.py"))
        .interpreter(python.path())
        .env("SNAKEPIT_CODEC", codec);
    let Some(pool) = pool(python, worker, shape) else {
        return Ok(Availability::Absent("not compiled in: --features peers".to_owned()));
    };
    let pool = pool.queue_limit(1 << 20);
    let custody = CustodyOptions::default().state_dir(home.path());
    let pit = runtime.block_on(Snakepit::builder().pool(pool).custody(custody).start())?;
    Ok(Availability::Available(Box::new(RunningEngine {
        runtime,
        pit,
        workers: shape.workers,
        over: shape.over,
        _home: home,
    })))
}

#[cfg_attr(
    feature = "peers",
    expect(clippy::unnecessary_wraps, reason = "it returns None without the feature")
)]
fn pool(python: &BenchPython, worker: PythonWorker, shape: PoolShape) -> Option<PoolOptions> {
    let plain = |script| vec![OsString::from(python.path()), BenchPython::script(script).into()];
    let bytes = |path| Route::post(path).bytes("data", "application/octet-stream");
    let pool = match shape.over {
        // Its workers take one call at a time, and have the next ones in their socket.
        CallTransport::Socket => return Some(snakepit::python(worker).workers(shape.workers)),
        CallTransport::Stdio if python.has("msgspec").is_ok() => {
            snakepit::stdio([plain("stdio_echo.py"), vec!["msgspec".into()]].concat())
        }
        CallTransport::Stdio | CallTransport::StdioOwnJson => snakepit::stdio(plain("stdio_echo.py")),
        CallTransport::Http => {
            snakepit::http(HttpWorker::new(plain("http_bytes.py")).route("echo", bytes("/echo")))
        }
        CallTransport::HttpServer => snakepit::http(plain("http_echo.py")),
        CallTransport::Mosec => {
            let server = Program::new(mosec::arguments(python, "{port}"));
            let server = server.env(mosec::WORKERS, shape.workers.to_string());
            let server =
                HttpWorker::new(server).ready(Readiness::probe("/")).route("echo", bytes("/inference"));
            // One server, which has the workers and as many connections as its own client path.
            return Some(snakepit::http(server).workers(1).concurrency(mosec::CONNECTIONS));
        }
        #[cfg(feature = "peers")]
        CallTransport::Grpc => snakepit::grpc(worker),
        #[cfg(not(feature = "peers"))]
        CallTransport::Grpc => return None,
    };
    Some(pool.workers(shape.workers).concurrency(crate::participant::WINDOW))
}

impl Drop for RunningEngine {
    fn drop(&mut self) {
        self.runtime.block_on(self.pit.stop());
    }
}

/// Echoes `calls` payloads one after another.
async fn echoes(
    pit: Snakepit,
    over: CallTransport,
    command: &'static str,
    bytes: usize,
    calls: usize,
) -> TaskResult<Vec<Duration>> {
    if over.has_bytes() {
        echoes_of(pit, command, Blob::from(vec![b'x'; bytes]), |echoed| echoed.len() == bytes, calls).await
    } else {
        echoes_of(pit, command, "x".repeat(bytes), |echoed| echoed.len() == bytes, calls).await
    }
}

async fn echoes_of<T: Serialize + DeserializeOwned + Send + 'static>(
    pit: Snakepit,
    command: &'static str,
    data: T,
    is_whole: impl Fn(&T) -> bool,
    calls: usize,
) -> TaskResult<Vec<Duration>> {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let began = Instant::now();
        let echoed: T = pit.call(command, args! { data: data }).await?;
        times.push(began.elapsed());
        if !is_whole(&echoed) {
            return Err("an echo has another length".into());
        }
    }
    Ok(times)
}

impl RunningEngine {
    fn echo_with(
        &self,
        command: &'static str,
        bytes: usize,
        calls: usize,
        in_flight: usize,
    ) -> BenchResult<CallTimes> {
        let mut callers = (in_flight * self.workers).max(1);
        if self.over == CallTransport::Mosec {
            callers = callers.min(mosec::CONNECTIONS);
        }
        let (pit, over) = (self.pit.clone(), self.over);
        self.runtime.block_on(async move {
            if over.connects() {
                let tasks = (0..callers).map(|_| echoes(pit.clone(), over, command, bytes, 1));
                futures_util::future::try_join_all(tasks).await.map_err(|error| error.to_string())?;
            }
            let began = Instant::now();
            let tasks: Vec<_> = (0..callers)
                .map(|_| tokio::spawn(echoes(pit.clone(), over, command, bytes, calls / callers)))
                .collect();
            let mut times = Vec::with_capacity(calls);
            for task in tasks {
                times.extend(task.await?.map_err(|error| error.to_string())?);
            }
            Ok(CallTimes::new(began.elapsed(), times.iter().map(Duration::as_secs_f64)))
        })
    }
}

impl EchoCaller for RunningEngine {
    fn one(&mut self, bytes: usize, calls: usize) -> BenchResult<CallTimes> {
        self.many(bytes, calls, 0)
    }

    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> BenchResult<CallTimes> {
        self.echo_with("echo", bytes, calls, in_flight)
    }

    fn pace(&self) -> CallPace {
        match self.over {
            CallTransport::Socket | CallTransport::Stdio | CallTransport::StdioOwnJson => CallPace::Fast,
            CallTransport::Grpc | CallTransport::Http | CallTransport::HttpServer | CallTransport::Mosec => {
                CallPace::Slow
            }
        }
    }
}

impl MeasuredPool for RunningEngine {
    fn together(&mut self, bytes: usize, calls: usize, in_flight: usize) -> BenchResult<CallTimes> {
        self.echo_with("echo_together", bytes, calls, in_flight)
    }

    fn stream(&mut self, items: usize) -> BenchResult<()> {
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
            if expected == items as u64 { TaskResult::Ok(()) } else { Err("items are missing".into()) }
        };
        self.runtime
            .block_on(async move { tokio::spawn(read).await?.map_err(|error| error.to_string().into()) })
    }

    fn map(&mut self, calls: usize) -> BenchResult<()> {
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
            if expected == calls as u64 + 1 { TaskResult::Ok(()) } else { Err("values are missing".into()) }
        };
        self.runtime
            .block_on(async move { tokio::spawn(read).await?.map_err(|error| error.to_string().into()) })
    }

    fn scale(&mut self, workers: usize) -> BenchResult<()> {
        let pool = &self.pit.pools()[0];
        let pids = self.worker_pids()?;
        pool.scale(workers);
        self.runtime.block_on(pool.await_ready(Duration::from_mins(2)))?;
        if workers == 0 {
            pids.into_iter().try_for_each(gone)?;
        }
        Ok(())
    }

    fn worker_pids(&self) -> BenchResult<Vec<i32>> {
        let workers = self.pit.pools()[0].workers();
        Ok(workers.iter().filter_map(|worker| Some(worker.pid?.as_raw())).collect())
    }
}

/// Waits for the exit of a process that is not a child of this one.
fn gone(pid: i32) -> BenchResult<()> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or("pid 0")?;
    // A process that has ended already has no pidfd.
    let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else {
        return Ok(());
    };
    rustix::event::poll(&mut [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)], None)?;
    Ok(())
}
