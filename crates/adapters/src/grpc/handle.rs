//! A worker that is a gRPC server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream;
use tokio::task::AbortHandle;
use tonic::{Code, Status};

use super::HELLO;
use super::calls::{GrpcCalls, cancelled};
use super::channel::{self, Channel, RpcEnd};
use super::link::GrpcLink;
use super::messages::{self, CallReply, CallRequest, HelloReply, HelloRequest, ValueFormat, health};
use crate::OnDrop;
use crate::adapter::timeouts::{FAST_CLOCK, LAST_ANSWERS};
use crate::adapter::{AtWork, CancelStage, Handle, Introduction, ProtocolFault, Reason, is_reserved};
use crate::call::{Call, CallError, CallId, Portion, RemoteError, RemoteErrorKind};
use crate::custody;
use crate::socket_dir::SocketDir;
use crate::transport::{StackPipe, StackSignals, take_crash};
use crate::value::Encoded;

const CALL: &str = "/snakepit.v1.Worker/Call";
const STREAM: &str = "/snakepit.v1.Worker/Stream";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// The handle of a gRPC worker.
pub(super) struct GrpcHandle {
    pub(super) process: custody::WorkerProcess,
    pub(super) introduction: Introduction,
    pub(super) channel: Channel,
    /// The greeting, for repeating it.
    pub(super) hello: HelloRequest,
    /// The number of repeated greetings that were answered.
    pub(super) beats: Arc<AtomicU64>,
    pub(super) calls: Arc<GrpcCalls>,
    /// `None` if the worker supports only calls.
    pub(super) link: Option<Arc<GrpcLink>>,
    /// Whether the worker knows the engine's own commands.
    pub(super) knows_engine: bool,
    pub(super) format: ValueFormat,
    pub(super) home: Option<SocketDir>,
    /// The stack pipe, and the signals that make the worker write its stacks. `None` if the worker has no such
    /// signals or is not the process that was started.
    pub(super) stacks: Option<(StackPipe, StackSignals)>,
}

impl GrpcHandle {
    /// Returns the RPC of a call.
    fn rpc(self: &Arc<Self>, call: &Call) -> Result<Rpc, CallError> {
        if !self.knows_engine && is_reserved(call.command()) {
            let asks = call.command() == "snakepit.health";
            return Ok(if asks { Rpc::Health } else { Rpc::Nothing });
        }
        let request = messages::request(call, self.format)
            .map_err(|source| CallError::Arguments { command: call.command().to_owned(), source })?;
        Ok(match call.stream_credit() {
            None => Rpc::Call(request),
            Some(_) => Rpc::Stream(request),
        })
    }

    async fn call(&self, id: u64, request: CallRequest, remaining: Option<Duration>) {
        match self.channel.unary::<_, CallReply>(CALL, request, remaining).await {
            Ok(reply) => {
                self.end_tools_of(id);
                self.calls.answer(id, reply);
            }
            Err(status) => self.failed(id, &status, remaining).await,
        }
    }

    async fn stream(&self, id: u64, request: CallRequest, remaining: Option<Duration>) {
        let Some(credit) = self.calls.held().credit(id) else { return };
        let asked = stream::iter([request]);
        let mut replies = match self.channel.stream::<_, CallReply>(STREAM, asked, remaining).await {
            Ok(replies) => replies,
            Err(status) => return self.failed(id, &status, remaining).await,
        };
        loop {
            // Unread items stay in the window of HTTP/2, and then in the worker.
            credit.available().await;
            let outcome = match replies.message().await {
                Ok(Some(reply)) => match self.calls.item(id, reply) {
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
                Ok(None) => Ok(Encoded::nil()),
                Err(status) => return self.failed(id, &status, remaining).await,
            };
            self.end_tools_of(id);
            return self.calls.finish(id, outcome);
        }
    }

    /// Asks the worker's health service, which is optional.
    async fn health(&self, id: u64) {
        let request = health::Request { service: String::new() };
        let outcome = match self.channel.unary::<_, health::Response>(HEALTH, request, None).await {
            Ok(health::Response { status: health::SERVING }) => Ok(Encoded::nil()),
            Err(status) if status.code() == Code::Unimplemented => Ok(Encoded::nil()),
            Ok(health::Response { status }) => Err(RemoteError::new(
                RemoteErrorKind::Exception,
                format!(
                    "its health service reports status {status} instead of {} (SERVING)",
                    health::SERVING
                ),
            )),
            Err(status) => return self.failed(id, &status, None).await,
        };
        self.calls.finish(id, outcome);
    }

    /// Handles an RPC that ended without a reply. `remaining` is the time that it had.
    async fn failed(&self, id: u64, status: &Status, remaining: Option<Duration>) {
        if let (RpcEnd::Cancelled, Some(_)) = (channel::ended(status), remaining) {
            // When the deadline passes, the caller's own clock says so, and the call is given up. The worker's clock
            // may be a little fast.
            let _ = tokio::time::timeout(FAST_CLOCK, self.channel.closed()).await;
        }
        let error = messages::refusal(status);
        match (channel::ended(status), &self.link) {
            // The call is given up once the end of the worker is known.
            (RpcEnd::WithConnection, _) => {}
            (RpcEnd::Cancelled, Some(link)) => {
                if self.calls.give_up_rpc(id, error) {
                    link.cancel(id, 1);
                }
            }
            (RpcEnd::Cancelled, None) | (RpcEnd::WithStatus, _) => {
                self.end_tools_of(id);
                self.calls.finish(id, Err(error));
            }
        }
    }

    /// Asks the worker for its introduction again, which requires what a call requires. Any answer counts.
    fn greet_again(&self, answered: impl FnOnce() + Send + 'static) {
        let (channel, hello) = (self.channel.clone(), self.hello.clone());
        self.channel.spawn(async move {
            match channel.unary::<_, HelloReply>(HELLO, hello, None).await {
                Err(status) if channel::ended(&status) == RpcEnd::WithConnection => {}
                Ok(_) | Err(_) => answered(),
            }
        });
    }

    /// Stops using the connection, and settles all calls.
    fn give_up(&self) {
        self.channel.close(ProtocolFault::EndedByHost);
        if let Some(link) = &self.link {
            link.hang_up();
            link.end_tools();
        }
        self.calls.give_up();
        if let Some(home) = &self.home {
            home.remove();
        }
    }

    fn end_tools_of(&self, id: u64) {
        if let Some(link) = &self.link {
            link.end_of(id);
        }
    }
}

/// The RPC of a call.
enum Rpc {
    Call(CallRequest),
    Stream(CallRequest),
    Health,
    /// The worker does not know the command and needs none: answered at once.
    Nothing,
}

impl Rpc {
    fn start(self, handle: &Arc<GrpcHandle>, call: &Call) -> AbortHandle {
        let (id, remaining) = (call.id().get(), call.remaining());
        let (channel, handle) = (&handle.channel, Arc::clone(handle));
        channel.spawn(async move {
            match self {
                Self::Call(request) => handle.call(id, request, remaining).await,
                Self::Stream(request) => handle.stream(id, request, remaining).await,
                Self::Health => handle.health(id).await,
                Self::Nothing => handle.calls.finish(id, Ok(Encoded::nil())),
            }
        })
    }
}

impl Handle for GrpcHandle {
    fn process(&self) -> Option<&custody::WorkerProcess> {
        Some(&self.process)
    }

    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn execute(self: Arc<Self>, call: Call) {
        let rpc = match self.rpc(&call) {
            Ok(rpc) => rpc,
            Err(error) => return call.fail(error),
        };
        // A worker that broke the protocol may still run. The pool does not know yet and would assign the call to it
        // again, so the call is kept until the end of the worker is known.
        self.calls.begin(call, |call| (!self.channel.is_closed()).then(|| rpc.start(&self, call)));
    }

    fn cancel(&self, call: CallId, stage: CancelStage) {
        let id = call.get();
        match (stage, &self.link) {
            // Without a link, the worker does not report the end of a call. The call counts as ended once the worker
            // serves again.
            (CancelStage::Ask, None) => {
                if self.calls.give_up_rpc(id, cancelled()) {
                    let calls = Arc::clone(&self.calls);
                    self.greet_again(move || calls.ended(id));
                }
            }
            (CancelStage::Ask, Some(link)) => {
                if self.calls.give_up_rpc(id, cancelled()) {
                    link.cancel(id, 1);
                }
            }
            (CancelStage::Raise, Some(link)) if self.calls.held().holds(id) => link.cancel(id, 2),
            (CancelStage::Raise, _) => {}
        }
    }

    fn grant(&self, call: CallId, more: Portion) {
        self.calls.held().grant(call.get(), more);
    }

    fn stacks(&self) -> BoxFuture<'_, Option<String>> {
        async {
            let (pipe, signals) = self.stacks.as_ref()?;
            pipe.ask(&self.process, *signals, None).await
        }
        .boxed()
    }

    fn stacks_of(&self, call: CallId) -> BoxFuture<'_, Option<String>> {
        async move {
            let (pipe, signals) = self.stacks.as_ref()?;
            pipe.ask(&self.process, *signals, Some(call)).await
        }
        .boxed()
    }

    fn take_crash_stack(&self, printed: &mut Vec<String>) -> Option<String> {
        take_crash(printed)
    }

    fn ask_beat(&self) {
        let beats = Arc::clone(&self.beats);
        self.greet_again(move || {
            beats.fetch_add(1, Ordering::Relaxed);
        });
    }

    fn beats(&self) -> Option<u64> {
        // By the protocol, only a worker without a link is greeted again.
        self.link.is_none().then(|| self.beats.load(Ordering::Relaxed))
    }

    fn at_work(&self) -> Vec<AtWork> {
        self.calls.held().at_work()
    }

    fn broken(&self) -> BoxFuture<'_, ProtocolFault> {
        async { self.channel.closed().await }.boxed()
    }

    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()> {
        async move {
            // The pool drops this future when its patience runs out, and the calls must be settled nevertheless.
            let _calls = OnDrop(|| self.give_up());
            if reason == Reason::Died {
                // Answers that the worker gave before it died count. They were already read, or are in the socket.
                let _ = tokio::time::timeout(LAST_ANSWERS, self.channel.closed()).await;
            }
            if matches!(reason, Reason::Stopped | Reason::Replaced(_)) {
                self.calls.held().leave();
                if let Some(link) = &self.link {
                    link.hang_up();
                }
                // A worker without a link learns of its end by a signal, sent after this function returns. It may
                // still start the calls it holds.
                if self.link.is_some() || !self.calls.held().is_empty() {
                    self.process.exited().await;
                }
            }
        }
        .boxed()
    }
}
