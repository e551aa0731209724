//! The cast: ours in its variants, the floors and the peers, and how each is started.

use snakepit_proving::bench::Outcome;

use crate::Bench;
use crate::floor::awaited::AwaitedEcho;
use crate::floor::msgspec::MsgspecEcho;
use crate::floor::raw::RawWorker;
use crate::grip::{self, WithPids};
use crate::ours::{self, Codec, Over, Shape};
use crate::peer::{grpc, mosec, pools};
use crate::python::Python;
use crate::turns::{Caller, Start};

/// How many calls a worker of ours, or of a floor, may hold.
pub(crate) const WINDOW: usize = 64;

/// Who takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Ours,
    OursOwnCodec,
    OursOnOneCore,
    OursOnTwoCores,
    OursOverGrpc,
    OursOverStdio,
    OursOverHttp,
    RawEcho,
    AwaitedEcho,
    RawEchoOnOneCore,
    RawEchoOnTwoCores,
    MsgspecEcho,
    GrpcSync,
    GrpcAio,
    Executor,
    Pool,
    Mosec,
    Ray,
    Celery,
}

impl Who {
    /// Those who answer ours in every part.
    pub(crate) const PEERS: [Self; 7] =
        [Self::GrpcSync, Self::GrpcAio, Self::Pool, Self::Executor, Self::Mosec, Self::Ray, Self::Celery];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursOwnCodec => "ours without msgspec",
            Self::OursOnOneCore => "ours on one core",
            Self::OursOnTwoCores => "ours on two cores",
            Self::OursOverGrpc => "ours over gRPC",
            Self::OursOverStdio => "ours over stdio",
            Self::OursOverHttp => "ours over HTTP",
            Self::RawEcho => "raw echo, blocking",
            Self::AwaitedEcho => "raw echo, awaited",
            Self::RawEchoOnOneCore => "raw echo, blocking, on one core",
            Self::RawEchoOnTwoCores => "raw echo, blocking, on two cores",
            Self::MsgspecEcho => "pipelined msgspec echo, no scheduler",
            Self::GrpcSync => "tonic → grpcio sync",
            Self::GrpcAio => "tonic → grpcio aio",
            Self::Executor => "ProcessPoolExecutor",
            Self::Pool => "mp.Pool",
            Self::Mosec => "mosec over HTTP",
            Self::Ray => "Ray actors",
            Self::Celery => "Celery",
        }
    }

    pub(crate) fn start(self, bench: &Bench, workers: usize) -> Outcome<Start<Box<dyn Caller>>> {
        let python = &bench.python;
        let ours = |codec| ours_with_pids(python, Shape { workers, codec, over: Over::Socket });
        let ours_over = |over| {
            let shape = Shape { workers, codec: Codec::Msgspec, over };
            Outcome::Ok(ours_with_pids(python, shape)?.map(|(caller, _)| caller))
        };
        let raw = || raw_with_pid(python);
        match self {
            Self::Ours => Ok(ours(Codec::Msgspec)?.map(|(caller, _)| caller)),
            Self::OursOwnCodec => Ok(ours(Codec::Own)?.map(|(caller, _)| caller)),
            Self::OursOnOneCore => grip::together(|| ours(Codec::Msgspec)),
            Self::OursOnTwoCores => grip::apart(|| ours(Codec::Msgspec)),
            Self::OursOverGrpc => match grpc::installed(python) {
                Ok(()) => ours_over(Over::Grpc),
                Err(why) => Ok(Start::Absent(why)),
            },
            Self::OursOverStdio => ours_over(Over::Stdio),
            Self::OursOverHttp => ours_over(Over::Http),
            Self::RawEcho => Ok(raw()?.map(|(caller, _)| caller)),
            Self::AwaitedEcho => Ok(Start::Here(Box::new(AwaitedEcho::start(python)?))),
            Self::RawEchoOnOneCore => grip::together(raw),
            Self::RawEchoOnTwoCores => grip::apart(raw),
            Self::MsgspecEcho => {
                Ok(MsgspecEcho::start(python, workers)?.map(|it| -> Box<dyn Caller> { Box::new(it) }))
            }
            Self::GrpcSync => grpc::start(python, grpc::Server::Sync, workers),
            Self::GrpcAio => grpc::start(python, grpc::Server::Aio, workers),
            Self::Executor => python_host(python, "executor", workers),
            Self::Pool => python_host(python, "pool", workers),
            Self::Ray => match python.has("ray") {
                Ok(()) => python_host(python, "ray", workers),
                Err(why) => Ok(Start::Absent(why)),
            },
            Self::Mosec => mosec::start(python, workers),
            Self::Celery => Ok(Start::Absent(match python.has("celery") {
                Ok(()) => "installed, but this benchmark brings no broker".to_owned(),
                Err(why) => why,
            })),
        }
    }
}

fn python_host(python: &Python, kind: &str, workers: usize) -> Outcome<Start<Box<dyn Caller>>> {
    Ok(Start::Here(Box::new(pools::Host::start(python, kind, workers)?)))
}

fn ours_with_pids(python: &Python, shape: Shape) -> Outcome<Start<WithPids>> {
    Ok(match ours::start(python, shape)? {
        Start::Here(pit) => {
            let pids = pit.worker_pids()?;
            Start::Here((pit, pids))
        }
        Start::Absent(why) => Start::Absent(why),
    })
}

fn raw_with_pid(python: &Python) -> Outcome<Start<WithPids>> {
    let worker = RawWorker::start(python)?;
    let pid = worker.pid();
    Ok(Start::Here((Box::new(worker), vec![pid])))
}
