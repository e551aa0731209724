//! gRPC as Snakepit for Elixir uses it: one Python server process per worker. The client, tonic, is compiled only with
//! the feature `peers`.

#[cfg(feature = "peers")]
mod client;

use std::process::Command;
use std::time::{Duration, Instant};

use snakepit_bench::BenchResult;

use crate::child::{ChildPipes, PythonChild};
use crate::python::BenchPython;
use crate::turns::{Availability, EchoCaller};

/// One of grpcio's two servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrpcServerKind {
    Sync,
    Aio,
}

/// Server processes that are ready.
pub(crate) struct GrpcServers {
    children: Vec<(PythonChild, ChildPipes)>,
    ports: Vec<u16>,
}

/// Streams numbers from a server.
pub(crate) trait NumberStream {
    fn stream(&mut self, items: usize) -> BenchResult<()>;
}

impl GrpcServers {
    /// Starts `count` servers at once and waits until all of them are ready.
    pub(crate) fn start(
        python: &BenchPython,
        server: GrpcServerKind,
        count: usize,
    ) -> BenchResult<(Self, Duration)> {
        let script = BenchPython::script("grpc_server.py");
        let kind = match server {
            GrpcServerKind::Sync => "sync",
            GrpcServerKind::Aio => "aio",
        };
        let began = Instant::now();
        let threads: Vec<_> = (0..count)
            .map(|_| {
                let mut command = Command::new(python.path());
                command.arg(&script).arg(kind);
                std::thread::spawn(move || {
                    PythonChild::with_pipes(&mut command).map_err(|error| error.to_string())
                })
            })
            .collect();
        let mut servers = Self { children: Vec::new(), ports: Vec::new() };
        for thread in threads {
            let (child, pipes, port) = thread.join().expect("a start")?;
            servers.children.push((child, pipes));
            servers.ports.push(port.parse()?);
        }
        Ok((servers, began.elapsed()))
    }

    pub(crate) fn pids(&self) -> Vec<i32> {
        self.children.iter().map(|(child, _)| child.pid()).collect()
    }
}

/// Reports whether the Python packages of the servers are installed.
pub(crate) fn installed(python: &BenchPython) -> Result<(), String> {
    python.has("grpc").and_then(|()| python.has("google.protobuf"))
}

#[cfg(feature = "peers")]
pub(crate) fn start(
    python: &BenchPython,
    server: GrpcServerKind,
    workers: usize,
) -> BenchResult<Availability<Box<dyn EchoCaller>>> {
    Ok(client(python, server, workers)?.map(|it| -> Box<dyn EchoCaller> { Box::new(it) }))
}

#[cfg(feature = "peers")]
pub(crate) fn counter(
    python: &BenchPython,
    server: GrpcServerKind,
) -> BenchResult<Availability<Box<dyn NumberStream>>> {
    Ok(client(python, server, 1)?.map(|it| -> Box<dyn NumberStream> { Box::new(it) }))
}

#[cfg(feature = "peers")]
fn client(
    python: &BenchPython,
    server: GrpcServerKind,
    workers: usize,
) -> BenchResult<Availability<client::TonicClient>> {
    match installed(python) {
        Ok(()) => {
            let (servers, _) = GrpcServers::start(python, server, workers)?;
            Ok(Availability::Available(client::TonicClient::connect(servers)?))
        }
        Err(why) => Ok(Availability::Absent(why)),
    }
}

#[cfg(not(feature = "peers"))]
const LEFT_OUT: &str = "not compiled in: --features peers";

#[cfg(not(feature = "peers"))]
#[expect(clippy::unnecessary_wraps, reason = "starting can fail where there is something to start")]
pub(crate) fn start(
    _python: &BenchPython,
    _server: GrpcServerKind,
    _workers: usize,
) -> BenchResult<Availability<Box<dyn EchoCaller>>> {
    Ok(Availability::Absent(LEFT_OUT.to_owned()))
}

#[cfg(not(feature = "peers"))]
#[expect(clippy::unnecessary_wraps, reason = "starting can fail where there is something to start")]
pub(crate) fn counter(
    _python: &BenchPython,
    _server: GrpcServerKind,
) -> BenchResult<Availability<Box<dyn NumberStream>>> {
    Ok(Availability::Absent(LEFT_OUT.to_owned()))
}
