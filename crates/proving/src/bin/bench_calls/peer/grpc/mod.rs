//! gRPC, Snakepit's way until now: a server process in Python for each worker. The client, tonic, is compiled in only
//! with the feature `peers`.

#[cfg(feature = "peers")]
mod client;

use std::process::Command;
use std::time::{Duration, Instant};

use snakepit_proving::bench::Outcome;

use crate::kid::{Kid, Talk};
use crate::python::Python;
use crate::turns::{Caller, Start};

/// Which of grpcio's two servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Sync,
    Aio,
}

/// Server processes that serve.
pub(crate) struct Servers {
    kids: Vec<(Kid, Talk)>,
    ports: Vec<u16>,
}

/// Streams numbers from a server.
pub(crate) trait Counter {
    fn stream(&mut self, items: usize) -> Outcome<()>;
}

impl Servers {
    /// Starts so many, all at once, and waits until all serve.
    pub(crate) fn start(python: &Python, server: Server, count: usize) -> Outcome<(Self, Duration)> {
        let script = Python::script("grpc_server.py");
        let kind = match server {
            Server::Sync => "sync",
            Server::Aio => "aio",
        };
        let began = Instant::now();
        let threads: Vec<_> = (0..count)
            .map(|_| {
                let mut command = Command::new(python.path());
                command.arg(&script).arg(kind);
                std::thread::spawn(move || Kid::with_pipes(&mut command).map_err(|error| error.to_string()))
            })
            .collect();
        let mut servers = Self { kids: Vec::new(), ports: Vec::new() };
        for thread in threads {
            let (kid, talk, port) = thread.join().expect("a start")?;
            servers.kids.push((kid, talk));
            servers.ports.push(port.parse()?);
        }
        Ok((servers, began.elapsed()))
    }

    pub(crate) fn pids(&self) -> Vec<i32> {
        self.kids.iter().map(|(kid, _)| kid.pid()).collect()
    }
}

/// Whether the Python half can run.
pub(crate) fn installed(python: &Python) -> Result<(), String> {
    python.has("grpc").and_then(|()| python.has("google.protobuf"))
}

#[cfg(feature = "peers")]
pub(crate) fn start(python: &Python, server: Server, workers: usize) -> Outcome<Start<Box<dyn Caller>>> {
    Ok(client(python, server, workers)?.map(|it| -> Box<dyn Caller> { Box::new(it) }))
}

#[cfg(feature = "peers")]
pub(crate) fn counter(python: &Python, server: Server) -> Outcome<Start<Box<dyn Counter>>> {
    Ok(client(python, server, 1)?.map(|it| -> Box<dyn Counter> { Box::new(it) }))
}

#[cfg(feature = "peers")]
fn client(python: &Python, server: Server, workers: usize) -> Outcome<Start<client::Tonic>> {
    match installed(python) {
        Ok(()) => {
            let (servers, _) = Servers::start(python, server, workers)?;
            Ok(Start::Here(client::Tonic::connect(servers)?))
        }
        Err(why) => Ok(Start::Absent(why)),
    }
}

#[cfg(not(feature = "peers"))]
const LEFT_OUT: &str = "not compiled in: --features peers";

#[cfg(not(feature = "peers"))]
#[expect(clippy::unnecessary_wraps, reason = "starting can fail where there is something to start")]
pub(crate) fn start(_python: &Python, _server: Server, _workers: usize) -> Outcome<Start<Box<dyn Caller>>> {
    Ok(Start::Absent(LEFT_OUT.to_owned()))
}

#[cfg(not(feature = "peers"))]
#[expect(clippy::unnecessary_wraps, reason = "starting can fail where there is something to start")]
pub(crate) fn counter(_python: &Python, _server: Server) -> Outcome<Start<Box<dyn Counter>>> {
    Ok(Start::Absent(LEFT_OUT.to_owned()))
}
