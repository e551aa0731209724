//! mosec, a Rust HTTP server with Python workers. Its design is the closest to ours.

use std::ffi::OsString;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use snakepit_bench::BenchResult;

use super::http::HttpConnection;
use crate::child::PythonChild;
use crate::python::BenchPython;
use crate::turns::{Availability, CallPace, CallTimes, EchoCaller};

/// HTTP/1.1 has one request in flight per connection, so many calls need many connections, at most this number.
pub(crate) const CONNECTIONS: usize = 32;

const SCRIPT: &str = "mosec_server.py";
const OPTIONS: [&str; 6] = ["--address", "127.0.0.1", "--log-level", "error", "--timeout", "30000"];
/// The variable with the number of workers.
pub(crate) const WORKERS: &str = "BENCH_WORKERS";

const PATIENCE: Duration = Duration::from_secs(30);

struct MosecServer {
    port: u16,
    workers: usize,
    connections: Vec<HttpConnection>,
    _child: PythonChild,
}

pub(crate) fn start(python: &BenchPython, workers: usize) -> BenchResult<Availability<Box<dyn EchoCaller>>> {
    if let Err(why) = python.has("mosec") {
        return Ok(Availability::Absent(why));
    }
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut command = Command::new(python.path());
    command.args(&arguments(python, &port.to_string())[1..]).env(WORKERS, workers.to_string());
    let child = PythonChild::with_open_stdin(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let began = Instant::now();
    // mosec does not announce that it is ready, so it gets requests until it answers or dies.
    while HttpConnection::open(port).and_then(|mut it| it.post("/inference", 1)).is_err() {
        if began.elapsed() > PATIENCE || child.ends_within(Duration::from_millis(50))? {
            return Err("mosec does not answer".into());
        }
    }
    Ok(Availability::Available(Box::new(MosecServer {
        port,
        workers,
        connections: Vec::new(),
        _child: child,
    })))
}

/// Returns the command line of the server.
pub(crate) fn arguments(python: &BenchPython, port: &str) -> Vec<OsString> {
    let mut arguments = vec![python.path().into(), BenchPython::script(SCRIPT).into()];
    arguments.extend(OPTIONS.into_iter().chain(["--port", port]).map(OsString::from));
    arguments
}

impl MosecServer {
    fn connect(&mut self, count: usize) -> BenchResult<()> {
        while self.connections.len() < count {
            self.connections.push(HttpConnection::open(self.port)?);
        }
        Ok(())
    }
}

impl EchoCaller for MosecServer {
    fn one(&mut self, bytes: usize, calls: usize) -> BenchResult<CallTimes> {
        self.connect(1)?;
        let began = Instant::now();
        let times = post_all(&mut self.connections[0], bytes, calls)?;
        Ok(CallTimes::new(began.elapsed(), times))
    }

    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> BenchResult<CallTimes> {
        let count = (in_flight * self.workers).min(CONNECTIONS);
        self.connect(count)?;
        let share = calls.div_ceil(count);
        let began = Instant::now();
        let times = thread::scope(|scope| {
            let threads: Vec<_> = self.connections[..count]
                .iter_mut()
                .map(|it| scope.spawn(move || post_all(it, bytes, share).map_err(|error| error.to_string())))
                .collect();
            let mut times = Vec::with_capacity(calls);
            for thread in threads {
                times.extend(thread.join().expect("a connection")?);
            }
            Ok::<_, String>(times)
        })?;
        Ok(CallTimes::new(began.elapsed(), times))
    }

    fn pace(&self) -> CallPace {
        CallPace::Slow
    }
}

fn post_all(connection: &mut HttpConnection, bytes: usize, calls: usize) -> BenchResult<Vec<f64>> {
    (0..calls)
        .map(|_| {
            let began = Instant::now();
            connection.post("/inference", bytes)?;
            Ok(began.elapsed().as_secs_f64())
        })
        .collect()
}
