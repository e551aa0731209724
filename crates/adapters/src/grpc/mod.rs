//! Workers that are gRPC servers and implement `spec/snakepit.proto`: Python workers with the bundled SDK, and
//! programs in any language. The file of a Python worker needs no change.
//!
//! ```
//! use snakepit::adapter::grpc::GrpcWorker;
//! use snakepit::grpc;
//!
//! let ours = grpc(GrpcWorker::python("worker.py"));
//! let theirs = grpc(GrpcWorker::command(["node", "worker.mjs"]).tcp());
//! ```
//!
//! A worker listens on a Unix socket in a directory that only its user may enter. A worker on TCP listens on the
//! loopback only, which every user of the machine can reach; each call therefore carries the worker's secret. The
//! flow control of HTTP/2 slows down a stream: the host reads only what the caller has room for.

mod calls;
mod channel;
mod codec;
mod handle;
mod link;
mod messages;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use tonic::{Code, Status};

use super::json::Integers;
use super::pids::own_number;
use super::python::{ProcessLaunch, PythonWorker};
use super::ready_line::{self, Address, Announced, Listens};
use super::secret::secret;
use super::socket_dir::SocketDir;
use super::{Adapter, Handle, Introduction, Program, ProtocolFault, Spawner, StartError};
use crate::custody::{self, Command};
use crate::environment::Environment;
use crate::logging::quietly;
use crate::transport::{StackPipe, StackSignals};
use calls::GrpcCalls;
use channel::{Channel, RpcEnd};
use handle::GrpcHandle;
use link::GrpcLink;
use messages::{Encoding, FromWorker, HelloReply, HelloRequest, PROTOCOL, ValueFormat};
use snakepit_core::PoolOptions;

/// The file descriptor of the worker's stack pipe.
const STACK_FD: i32 = 3;
const HELLO: &str = "/snakepit.v1.Worker/Hello";
const LINK: &str = "/snakepit.v1.Worker/Link";

/// A worker that is a gRPC server.
///
/// ```
/// use snakepit::adapter::GrpcWorker;
///
/// let python = snakepit::grpc(GrpcWorker::python("worker.py").env("MODEL", "small"));
/// let program = snakepit::grpc(GrpcWorker::command(["./worker", "--verbose"]).tcp()).workers(2);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct GrpcWorker {
    kind: GrpcLaunch,
    over: GrpcTransport,
}

#[derive(Clone, Debug)]
enum GrpcLaunch {
    Python(Box<PythonWorker>),
    Command(Program),
}

/// What the worker listens on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GrpcTransport {
    Unix,
    Tcp,
}

impl GrpcWorker {
    /// Creates a Python worker from a file or a module, as for any Python pool. Its environment needs `grpcio` and
    /// `protobuf` (`pip install grpcio protobuf`).
    pub fn python(worker: impl Into<PythonWorker>) -> Self {
        Self { kind: GrpcLaunch::Python(Box::new(worker.into())), over: GrpcTransport::Unix }
    }

    /// Creates a worker from a program that implements `spec/snakepit.proto`.
    pub fn command(program: impl Into<Program>) -> Self {
        Self { kind: GrpcLaunch::Command(program.into()), over: GrpcTransport::Unix }
    }

    /// Makes the worker listen on a port of the loopback instead of a Unix socket.
    pub fn tcp(mut self) -> Self {
        self.over = GrpcTransport::Tcp;
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.kind = match self.kind {
            GrpcLaunch::Python(worker) => GrpcLaunch::Python(Box::new(worker.env(key, value))),
            GrpcLaunch::Command(program) => GrpcLaunch::Command(program.env(key, value)),
        };
        self
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.kind = match self.kind {
            GrpcLaunch::Python(worker) => GrpcLaunch::Python(Box::new(worker.current_dir(dir))),
            GrpcLaunch::Command(program) => GrpcLaunch::Command(program.current_dir(dir)),
        };
        self
    }
}

impl<W: Into<PythonWorker>> From<W> for GrpcWorker {
    fn from(worker: W) -> Self {
        Self::python(worker)
    }
}

/// Returns the options of a pool of gRPC workers. The pool is named after the file, module or program.
///
/// ```
/// let pool = snakepit::grpc("worker.py").workers(2);
/// ```
pub fn pool(worker: impl Into<GrpcWorker>) -> PoolOptions {
    let GrpcWorker { kind, over } = worker.into();
    let (name, launch) = match kind {
        GrpcLaunch::Python(worker) => (worker.name(), ProcessLaunch::python(*worker)),
        GrpcLaunch::Command(program) => (program.name(), ProcessLaunch::command(program)),
    };
    PoolOptions::new(name, GrpcAdapter { launch, over })
}

/// The maximum length of the reply to Hello.
const LONGEST_HELLO: usize = 1 << 20;

struct GrpcAdapter {
    launch: ProcessLaunch,
    over: GrpcTransport,
}

impl Adapter for GrpcAdapter {
    fn environment(&self) -> Option<&Environment> {
        self.launch.environment()
    }

    fn init<'a>(&'a self, spawner: &'a Spawner) -> BoxFuture<'a, Result<(), StartError>> {
        self.launch.prepare(spawner).boxed()
    }

    fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        async move {
            let secret = secret().map_err(|error| spawner.system("a secret", error))?;
            let (home, address) = match self.over {
                GrpcTransport::Tcp => (None, "127.0.0.1:0".into()),
                GrpcTransport::Unix => {
                    let home = SocketDir::new(spawner.run_dir(), "grpc");
                    let home = home.map_err(|error| spawner.system("a directory for its socket", error))?;
                    let mut address = OsString::from("unix:");
                    address.push(home.socket());
                    (Some(home), address)
                }
            };
            let command = self
                .launch
                .start()?
                .env("SNAKEPIT_GRPC", address)
                .env("SNAKEPIT_SECRET", &secret)
                .env("SNAKEPIT_CONCURRENCY", spawner.concurrency().to_string())
                .env("SNAKEPIT_MAX_FRAME", spawner.max_frame().to_string());
            let (stacks, stack_fd) =
                StackPipe::new().map_err(|error| spawner.system("a pipe for stacks", error))?;
            let command = command.fd(stack_fd, STACK_FD).env("SNAKEPIT_STACK_FD", STACK_FD.to_string());
            let handle = greet(&spawner, command, &secret, (home, stacks)).await?;
            Ok(Arc::new(handle) as Arc<dyn Handle>)
        }
        .boxed()
    }
}

/// Starts a worker, waits until it is ready, and greets it.
async fn greet(
    spawner: &Spawner,
    command: Command,
    secret: &str,
    (home, stacks): (Option<SocketDir>, StackPipe),
) -> Result<GrpcHandle, StartError> {
    let Announced { process, announcement, .. } =
        ready_line::start(spawner, command, Listens::Somewhere).await?;
    let address = announcement.address.clone().unwrap_or(Address::Port(0));
    let max_frame = spawner.max_frame();
    let channel = match Channel::connect(&address, &process, secret, max_frame).await {
        Ok(channel) => channel,
        Err(fault) => return Err(spawner.ended_early(&process, fault).await),
    };
    let greeting = greeting(spawner);
    let hello = say_hello(spawner, &process, &channel, greeting.clone()).await?;
    let has = |feature: &str| hello.features.iter().any(|known| known == feature);
    let encoding = Encoding::try_from(hello.encoding)
        .map_err(|_| spawner.fault(ProtocolFault::UnknownEncoding(hello.encoding)))?;
    let format = ValueFormat { encoding, integers: Integers::of(&hello.features) };
    let calls = Arc::new(GrpcCalls::new(spawner.concurrency(), format.integers));
    let link = has("link").then(|| open_link(spawner, &channel, &calls, format));
    // A signal that the process does not handle would end it, and the started process may be a wrapper script.
    let is_itself = announcement.pid.is_some() && own_number(process.pid().as_raw()) == announcement.pid;
    let named = if hello.commands.is_empty() { &announcement.commands } else { &hello.commands };
    let introduction = Introduction::new(named.clone()).language(&hello.language).sdk(&hello.sdk);
    Ok(GrpcHandle {
        process,
        introduction,
        channel,
        hello: greeting,
        beats: Arc::default(),
        calls,
        link,
        knows_engine: has("engine"),
        format,
        home,
        stacks: stack_signals(&hello).filter(|_| is_itself).map(|signals| (stacks, signals)),
    })
}

/// Returns the signals at which the worker dumps its stacks, or `None` if it has none.
fn stack_signals(hello: &HelloReply) -> Option<StackSignals> {
    let said = |signal: i32| (signal > 0).then_some(signal);
    Some(StackSignals { threads: said(hello.stack_signal)?, tasks: said(hello.tasks_signal) })
}

fn greeting(spawner: &Spawner) -> HelloRequest {
    HelloRequest {
        protocol: PROTOCOL,
        engine: env!("CARGO_PKG_VERSION").into(),
        pool: spawner.pool().into(),
        worker: spawner.worker_id().to_string(),
        concurrency: u32::try_from(spawner.concurrency()).unwrap_or(u32::MAX),
        max_frame: spawner.max_frame() as u64,
    }
}

async fn say_hello(
    spawner: &Spawner,
    process: &custody::WorkerProcess,
    channel: &Channel,
    request: HelloRequest,
) -> Result<HelloReply, StartError> {
    let limited = channel.limited(LONGEST_HELLO);
    let hello: HelloReply = match quietly(limited.unary(HELLO, request, None)).await {
        Ok(hello) => hello,
        Err(status) if channel::ended(&status) == RpcEnd::WithConnection => {
            return Err(spawner.ended_early(process, channel.closed().await).await);
        }
        Err(status) if status.code() == Code::Unimplemented => {
            return Err(spawner.fault(ProtocolFault::UnknownRpc { rpc: "snakepit.v1.Worker/Hello" }));
        }
        Err(status) => return Err(spawner.fault(failed_rpc("Hello", &status))),
    };
    if hello.protocol != PROTOCOL {
        let worker = hello.protocol.to_string();
        return Err(spawner.fault(ProtocolFault::Version { worker, engine: PROTOCOL.into() }));
    }
    Ok(hello)
}

fn failed_rpc(rpc: &'static str, status: &Status) -> ProtocolFault {
    ProtocolFault::FailedRpc { rpc, status: format!("{:?}: {}", status.code(), status.message()) }
}

/// Opens the link. When the link ends, the worker counts as broken.
fn open_link(
    spawner: &Spawner,
    channel: &Channel,
    calls: &Arc<GrpcCalls>,
    format: ValueFormat,
) -> Arc<GrpcLink> {
    let (link, said) = GrpcLink::new(Arc::clone(calls), spawner.output(), spawner.max_frame(), format);
    let (heard, own) = (Arc::clone(&link), channel.clone());
    channel.spawn(async move {
        own.close(match own.stream::<_, FromWorker>(LINK, said, None).await {
            Ok(messages) => heard.listen(messages).await,
            Err(status) => failed_rpc("Link", &status),
        });
    });
    link
}
