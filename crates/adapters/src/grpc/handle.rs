//! A worker that is a gRPC server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::task::AbortHandle;
use tonic::{Code, Status};

use super::HELLO;
use super::calls::{GrpcCalls, cancelled};
use super::channel::{self, Channel, RpcEnd};
use super::link::GrpcLink;
use super::messages::{self, CallReply, CallRequest, HelloReply, HelloRequest, ValueFormat, health};
use crate::OnDrop;
use crate::adapter::patience::{FAST_CLOCK, LAST_ANSWERS};
use crate::adapter::{AtWork, CancelStage, Handle, Introduction, Reason, is_reserved};
use crate::call::{Call, CallError, CallId, Portion, RemoteError, RemoteErrorKind};
use crate::custody;
use crate::home::SocketDir;
use crate::transport::{StackPipe, StackSignals, take_crash};
use crate::value::Encoded;

const CALL: &str = "/snakepit.v1.Worker/Call";
const STREAM: &str = "/snakepit.v1.Worker/Stream";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// See the module.
pub(super) struct GrpcHandle {
    pub(super) process: custody::WorkerProcess,
    pub(super) introduction: Introduction,
    pub(super) channel: Channel,
    /// How it was greeted.
    pub(super) hello: HelloRequest,
    /// How often it has answered that again.
    pub(super) beats: Arc<AtomicU64>,
    pub(super) calls: Arc<GrpcCalls>,
    /// None if the worker knows calls and nothing else.
    pub(super) link: Option<Arc<GrpcLink>>,
    /// Whether it knows the engine's own commands.
    pub(super) knows_engine: bool,
    pub(super) format: ValueFormat,
    pub(super) home: Option<SocketDir>,
    /// The pipe, and the signal that brings stacks; none if the worker has none, or is not the process that was started.
    pub(super) stacks: Option<(StackPipe, StackSignals)>,
}

impl GrpcHandle {
    /// What the RPC of a call is.
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
        let Some(credit) = self.calls.credit(id) else { return };
        let mut replies = match self.channel.stream::<_, CallReply>(STREAM, request, remaining).await {
            Ok(replies) => replies,
            Err(status) => return self.failed(id, &status, remaining).await,
        };
        loop {
            // What is not read here stays in the window of HTTP/2, and then at the worker.
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

    /// Asks the worker's health service, which not every worker has.
    async fn health(&self, id: u64) {
        let request = health::Request { service: String::new() };
        let outcome = match self.channel.unary::<_, health::Response>(HEALTH, request, None).await {
            Ok(health::Response { status: health::SERVING }) => Ok(Encoded::nil()),
            Err(status) if status.code() == Code::Unimplemented => Ok(Encoded::nil()),
            Ok(health::Response { status }) => Err(RemoteError::new(
                RemoteErrorKind::Exception,
                format!("its health service says {status}, and {} is SERVING", health::SERVING),
            )),
            Err(status) => return self.failed(id, &status, None).await,
        };
        self.calls.finish(id, outcome);
    }

    /// An RPC has ended without a reply, which had so much time.
    async fn failed(&self, id: u64, status: &Status, remaining: Option<Duration>) {
        if let (RpcEnd::Cancelled, Some(_)) = (channel::ended(status), remaining) {
            // When a caller's time is over, its own clock says, and then this is given up; the worker's may be a little fast.
            let _ = tokio::time::timeout(FAST_CLOCK, self.channel.closed()).await;
        }
        let error = messages::refusal(status);
        match (channel::ended(status), &self.link) {
            // The call is given up when the end of its worker is known.
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

    /// Asks the worker for its introduction once more, which needs what a call needs. Any answer will do.
    fn greet_again(&self, answered: impl FnOnce() + Send + 'static) {
        let (channel, hello) = (self.channel.clone(), self.hello.clone());
        self.channel.spawn(async move {
            match channel.unary::<_, HelloReply>(HELLO, hello, None).await {
                Err(status) if channel::ended(&status) == RpcEnd::WithConnection => {}
                Ok(_) | Err(_) => answered(),
            }
        });
    }

    /// Ends the connection, and settles all calls.
    fn give_up(&self) {
        self.channel.close("it was ended");
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
    /// The worker has no use for it.
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
        // A worker that broke the protocol may live. What comes for it is kept until its end is known: the pool does not
        // know yet, and would choose it again.
        self.calls.begin(call, |call| (!self.channel.is_closed()).then(|| rpc.start(&self, call)));
    }

    fn cancel(&self, call: CallId, stage: CancelStage) {
        let id = call.get();
        match (stage, &self.link) {
            // Nobody tells when it is over: that is when the worker can serve again.
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
            (CancelStage::Raise, Some(link)) if self.calls.holds(id) => link.cancel(id, 2),
            (CancelStage::Raise, _) => {}
        }
    }

    fn grant(&self, call: CallId, more: Portion) {
        self.calls.grant(call, more);
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
        // One with a link has been greeted by its engine, and hears of nothing twice.
        self.link.is_none().then(|| self.beats.load(Ordering::Relaxed))
    }

    fn at_work(&self) -> Vec<AtWork> {
        self.calls.at_work()
    }

    fn broken(&self) -> BoxFuture<'_, String> {
        async { self.channel.closed().await.to_string() }.boxed()
    }

    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()> {
        async move {
            // The pool drops this future when it loses patience, and the calls must be settled all the same.
            let _calls = OnDrop(|| self.give_up());
            if reason == Reason::Died {
                // What it had answered counts: it is read already, or lies in the socket before its end.
                let _ = tokio::time::timeout(LAST_ANSWERS, self.channel.closed()).await;
            }
            if matches!(reason, Reason::Stopped | Reason::Replaced(_)) {
                self.calls.leave();
                if let Some(link) = &self.link {
                    link.hang_up();
                }
                // One that has no link hears of its end by a signal, once this returns. But what it has, it may yet begin.
                if self.link.is_some() || !self.calls.is_empty() {
                    self.process.exited().await;
                }
            }
        }
        .boxed()
    }
}
