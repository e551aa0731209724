//! The participants: our variants, the floors and the peers, and how each is started.

use snakepit_bench::BenchResult;

use crate::CallBench;
use crate::blocking::BlockingEngine;
use crate::engine::{self, CallTransport, Codec, PoolShape};
use crate::floor::awaited_echo::AwaitedEcho;
use crate::floor::blocking_echo::RawWorker;
use crate::floor::pipelined_echo::MsgspecEcho;
use crate::peer::{grpc, mosec, pools};
use crate::pinning::{self, CallerWithPids};
use crate::python::BenchPython;
use crate::turns::{Availability, EchoCaller};

/// The number of calls that a worker of ours or of a floor may hold.
pub(crate) const WINDOW: usize = 64;

/// A participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Participant {
    MeasuredPool,
    OursBlocking,
    OursOwnCodec,
    OursOnOneCore,
    OursOnTwoCores,
    OursOverGrpc,
    OursOverStdio,
    OursOverStdioOwnJson,
    OursOverHttp,
    OursOverHttpServer,
    OursBeforeMosec,
    RawEcho,
    AwaitedEcho,
    RawEchoOnOneCore,
    RawEchoOnTwoCores,
    MsgspecEcho,
    GrpcSync,
    GrpcAio,
    Executor,
    Pool,
    MosecServer,
    Ray,
    Celery,
}

impl Participant {
    /// The peers that we compare our numbers with.
    pub(crate) const PEERS: [Self; 7] = [
        Self::GrpcSync,
        Self::GrpcAio,
        Self::Pool,
        Self::Executor,
        Self::MosecServer,
        Self::Ray,
        Self::Celery,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MeasuredPool => "ours",
            Self::OursBlocking => "ours, blocking",
            Self::OursOwnCodec => "ours without msgspec",
            Self::OursOnOneCore => "ours on one core",
            Self::OursOnTwoCores => "ours on two cores",
            Self::OursOverGrpc => "ours over gRPC",
            Self::OursOverStdio => "ours over stdio",
            Self::OursOverStdioOwnJson => "ours over stdio, with Python's own json",
            Self::OursOverHttp => "ours over HTTP",
            Self::OursOverHttpServer => "ours over HTTP, to http.server",
            Self::OursBeforeMosec => "ours over HTTP, to mosec",
            Self::RawEcho => "raw echo, blocking",
            Self::AwaitedEcho => "raw echo, awaited",
            Self::RawEchoOnOneCore => "raw echo, blocking, on one core",
            Self::RawEchoOnTwoCores => "raw echo, blocking, on two cores",
            Self::MsgspecEcho => "pipelined msgspec echo, no scheduler",
            Self::GrpcSync => "tonic → grpcio sync",
            Self::GrpcAio => "tonic → grpcio aio",
            Self::Executor => "ProcessPoolExecutor",
            Self::Pool => "mp.Pool",
            Self::MosecServer => "mosec over HTTP",
            Self::Ray => "Ray actors",
            Self::Celery => "Celery",
        }
    }

    pub(crate) fn start(
        self,
        bench: &CallBench,
        workers: usize,
    ) -> BenchResult<Availability<Box<dyn EchoCaller>>> {
        let python = &bench.python;
        let ours = |codec| ours_with_pids(python, PoolShape { workers, codec, over: CallTransport::Socket });
        let ours_over = |over| {
            let shape = PoolShape { workers, codec: Codec::Msgspec, over };
            BenchResult::Ok(ours_with_pids(python, shape)?.map(|(caller, _)| caller))
        };
        let blocking_echo = || raw_with_pid(python);
        match self {
            Self::MeasuredPool => Ok(ours(Codec::Msgspec)?.map(|(caller, _)| caller)),
            Self::OursBlocking => Ok(Availability::Available(Box::new(BlockingEngine::start(python)?))),
            Self::OursOwnCodec => Ok(ours(Codec::Own)?.map(|(caller, _)| caller)),
            Self::OursOnOneCore => pinning::together(|| ours(Codec::Msgspec)),
            Self::OursOnTwoCores => pinning::apart(|| ours(Codec::Msgspec)),
            Self::OursOverGrpc => match grpc::installed(python) {
                Ok(()) => ours_over(CallTransport::Grpc),
                Err(why) => Ok(Availability::Absent(why)),
            },
            Self::OursOverStdio => ours_over(CallTransport::Stdio),
            Self::OursOverStdioOwnJson => ours_over(CallTransport::StdioOwnJson),
            Self::OursOverHttp => ours_over(CallTransport::Http),
            Self::OursOverHttpServer => ours_over(CallTransport::HttpServer),
            Self::OursBeforeMosec => match python.has("mosec") {
                Ok(()) => ours_over(CallTransport::Mosec),
                Err(why) => Ok(Availability::Absent(why)),
            },
            Self::RawEcho => Ok(blocking_echo()?.map(|(caller, _)| caller)),
            Self::AwaitedEcho => Ok(Availability::Available(Box::new(AwaitedEcho::start(python)?))),
            Self::RawEchoOnOneCore => pinning::together(blocking_echo),
            Self::RawEchoOnTwoCores => pinning::apart(blocking_echo),
            Self::MsgspecEcho => {
                Ok(MsgspecEcho::start(python, workers)?.map(|it| -> Box<dyn EchoCaller> { Box::new(it) }))
            }
            Self::GrpcSync => grpc::start(python, grpc::GrpcServerKind::Sync, workers),
            Self::GrpcAio => grpc::start(python, grpc::GrpcServerKind::Aio, workers),
            Self::Executor => python_host(python, "executor", workers),
            Self::Pool => python_host(python, "pool", workers),
            Self::Ray => match python.has("ray") {
                Ok(()) => python_host(python, "ray", workers),
                Err(why) => Ok(Availability::Absent(why)),
            },
            Self::MosecServer => mosec::start(python, workers),
            Self::Celery => Ok(Availability::Absent(match python.has("celery") {
                Ok(()) => "installed, but this benchmark brings no broker".to_owned(),
                Err(why) => why,
            })),
        }
    }
}

fn python_host(
    python: &BenchPython,
    kind: &str,
    workers: usize,
) -> BenchResult<Availability<Box<dyn EchoCaller>>> {
    Ok(Availability::Available(Box::new(pools::PythonPoolHost::start(python, kind, workers)?)))
}

fn ours_with_pids(python: &BenchPython, shape: PoolShape) -> BenchResult<Availability<CallerWithPids>> {
    Ok(match engine::start(python, shape)? {
        Availability::Available(pit) => {
            let pids = pit.worker_pids()?;
            Availability::Available((pit, pids))
        }
        Availability::Absent(why) => Availability::Absent(why),
    })
}

fn raw_with_pid(python: &BenchPython) -> BenchResult<Availability<CallerWithPids>> {
    let worker = RawWorker::start(python)?;
    let pid = worker.pid();
    Ok(Availability::Available((Box::new(worker), vec![pid])))
}
