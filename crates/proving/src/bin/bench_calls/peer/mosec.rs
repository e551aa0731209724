//! mosec: a Rust HTTP server with Python workers, the peer that is built most like us.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use snakepit_proving::bench::Outcome;

use super::http::Connection;
use crate::kid::Kid;
use crate::python::Python;
use crate::turns::{Caller, Laps, Pace, Start};

/// HTTP/1.1 has one request in flight on a connection, so many in flight are many connections, up to this.
const CONNECTIONS: usize = 32;

const PATIENCE: Duration = Duration::from_secs(30);

struct Mosec {
    port: u16,
    workers: usize,
    connections: Vec<Connection>,
    _kid: Kid,
}

pub(crate) fn start(python: &Python, workers: usize) -> Outcome<Start<Box<dyn Caller>>> {
    if let Err(why) = python.has("mosec") {
        return Ok(Start::Absent(why));
    }
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut command = Command::new(python.path());
    command.arg(Python::script("mosec_server.py")).env("BENCH_WORKERS", workers.to_string());
    command.args(["--address", "127.0.0.1", "--log-level", "error", "--timeout", "30000"]);
    command.args(["--port", &port.to_string()]);
    let kid = Kid::with_open_stdin(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let began = Instant::now();
    // It says nothing when it is ready, so it is asked until it answers, or dies.
    while Connection::open(port).and_then(|mut it| it.post("/inference", 1)).is_err() {
        if began.elapsed() > PATIENCE || kid.ends_within(Duration::from_millis(50))? {
            return Err("mosec does not answer".into());
        }
    }
    Ok(Start::Here(Box::new(Mosec { port, workers, connections: Vec::new(), _kid: kid })))
}

impl Mosec {
    fn connect(&mut self, count: usize) -> Outcome<()> {
        while self.connections.len() < count {
            self.connections.push(Connection::open(self.port)?);
        }
        Ok(())
    }
}

impl Caller for Mosec {
    fn one(&mut self, bytes: usize, calls: usize) -> Outcome<Laps> {
        self.connect(1)?;
        let began = Instant::now();
        let times = post_all(&mut self.connections[0], bytes, calls)?;
        Ok(Laps::new(began.elapsed(), times))
    }

    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> Outcome<Laps> {
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
        Ok(Laps::new(began.elapsed(), times))
    }

    fn pace(&self) -> Pace {
        Pace::Slow
    }
}

fn post_all(connection: &mut Connection, bytes: usize, calls: usize) -> Outcome<Vec<f64>> {
    (0..calls)
        .map(|_| {
            let began = Instant::now();
            connection.post("/inference", bytes)?;
            Ok(began.elapsed().as_secs_f64())
        })
        .collect()
}
