//! A worker that is a gRPC server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{AbortHandle, BoxFuture, FutureExt};
use tonic::{Code, Status};

use super::HELLO;
use super::calls::{Calls, cancelled};
use super::channel::{self, Channel, Ended};
use super::link::Link;
use super::messages::{self, CallReply, CallRequest, HelloReply, HelloRequest, ValueFormat, health};
use crate::adapter::home::Home;
use crate::adapter::{AtWork, CancelStage, Handle, Introduction, Reason};
use crate::call::{Call, CallError, CallId, Portion, RemoteError};
use crate::custody;
use crate::pool::AUTOPSY_PATIENCE;
use crate::transport::{Credit, StackPipe, StackSignals, take_crash};
use crate::value::Encoded;

const CALL: &str = "/snakepit.v1.Worker/Call";
const STREAM: &str = "/snakepit.v1.Worker/Stream";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// By how much the end of a deadline may be seen sooner by a worker than here.
const FAST_CLOCK: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct GrpcHandle {
    pub(super) process: custody::Worker,
    pub(super) introduction: Introduction,
    pub(super) concurrency: usize,
    pub(super) channel: Channel,
    /// How it was greeted.
    pub(super) hello: HelloRequest,
    /// How often it has answered that again.
    pub(super) beats: Arc<AtomicU64>,
    pub(super) calls: Arc<Calls>,
    /// None if the worker knows calls and nothing else.
    pub(super) link: Option<Arc<Link>>,
    /// Whether it knows the engine's own commands.
    pub(super) knows_engine: bool,
    pub(super) format: ValueFormat,
    pub(super) home: Option<Home>,
    /// The pipe, and the signal that brings stacks; none if the worker has none, or is not the process that was started.
    pub(super) stacks: Option<(StackPipe, StackSignals)>,
}

impl GrpcHandle {
    /// What the RPC of a call is.
    fn rpc(self: &Arc<Self>, call: &Call) -> Result<Rpc, CallError> {
        if !self.knows_engine && call.command().starts_with("snakepit.") {
            let asks = call.command() == "snakepit.health";
            return Ok(if asks { Rpc::Health } else { Rpc::Nothing });
        }
        let request = messages::request(call, self.format)
            .map_err(|source| CallError::Arguments { command: call.command().to_owned(), source })?;
        Ok(match call.stream_credit() {
            None => Rpc::Call(request),
            Some(credit) => Rpc::Stream(request, Arc::new(Credit::new(credit))),
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

    async fn stream(&self, id: u64, request: CallRequest, credit: &Credit, remaining: Option<Duration>) {
        let mut replies = match self.channel.stream::<_, CallReply>(STREAM, request, remaining).await {
            Ok(replies) => replies,
            Err(status) => return self.failed(id, &status, remaining).await,
        };
        loop {
            // What is not read here stays in the window of HTTP/2, and then at the worker.
            credit.some().await;
            let outcome = match replies.message().await {
                Ok(Some(reply)) => match self.calls.item(id, reply, credit) {
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
                "exception",
                format!("its health service says {status}, and {} is SERVING", health::SERVING),
            )),
            Err(status) => return self.failed(id, &status, None).await,
        };
        self.calls.finish(id, outcome);
    }

    /// An RPC has ended without a reply, which had so much time.
    async fn failed(&self, id: u64, status: &Status, remaining: Option<Duration>) {
        if let (Ended::Cancelled, Some(_)) = (channel::ended(status), remaining) {
            // When a caller's time is over, its own clock says, and then this is given up; the worker's may be a little fast.
            let _ = tokio::time::timeout(FAST_CLOCK, self.channel.closed()).await;
        }
        let error = messages::refusal(status);
        match (channel::ended(status), &self.link) {
            // The call is given up when the end of its worker is known.
            (Ended::WithConnection, _) => {}
            (Ended::Cancelled, Some(link)) => {
                if self.calls.give_up_rpc(id, error) {
                    link.cancel(id, 1);
                }
            }
            (Ended::Cancelled, None) | (Ended::WithStatus, _) => {
                self.end_tools_of(id);
                self.calls.finish(id, Err(error));
            }
        }
    }

    /// Asks the worker for its introduction once more, which needs what a call needs. Any answer will do.
    fn greet_again(&self, answered: impl FnOnce() + Send + 'static) {
        let (channel, hello) = (self.channel.clone(), self.hello.clone());
        self.channel.driver().spawn(async move {
            match channel.unary::<_, HelloReply>(HELLO, hello, None).await {
                Err(status) if channel::ended(&status) == Ended::WithConnection => {}
                Ok(_) | Err(_) => answered(),
            }
        });
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
    Stream(CallRequest, Arc<Credit>),
    Health,
    /// The worker has no use for it.
    Nothing,
}

impl Rpc {
    fn start(self, handle: &Arc<GrpcHandle>, call: &Call) -> AbortHandle {
        let (id, remaining) = (call.id().get(), call.remaining());
        let driver = handle.channel.driver();
        let handle = Arc::clone(handle);
        driver.spawn_abortable(async move {
            match self {
                Self::Call(request) => handle.call(id, request, remaining).await,
                Self::Stream(request, credit) => handle.stream(id, request, &credit, remaining).await,
                Self::Health => handle.health(id).await,
                Self::Nothing => handle.calls.finish(id, Ok(Encoded::nil())),
            }
        })
    }
}

impl Handle for GrpcHandle {
    fn process(&self) -> Option<&custody::Worker> {
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
        let credit = match &rpc {
            Rpc::Stream(_, credit) => Some(Arc::clone(credit)),
            Rpc::Call(_) | Rpc::Health | Rpc::Nothing => None,
        };
        // A worker that broke the protocol may live. What comes for it is kept until its end is known: the pool does not
        // know yet, and would choose it again.
        self.calls.begin(call, credit, |call| (!self.channel.is_closed()).then(|| rpc.start(&self, call)));
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
        self.calls.at_work(self.concurrency)
    }

    fn broken(&self) -> BoxFuture<'_, String> {
        async { self.channel.closed().await.to_string() }.boxed()
    }

    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()> {
        async move {
            // Done on drop: whoever loses patience with a goodbye drops this, and the calls must not be forgotten.
            let _calls = GiveUp(self);
            if reason == Reason::Died {
                // What it had answered counts: it is read already, or lies in the socket before its end.
                let _ = tokio::time::timeout(AUTOPSY_PATIENCE / 4, self.channel.closed()).await;
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

/// Gives up what a worker holds when it is dropped.
struct GiveUp<'a>(&'a GrpcHandle);

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        self.0.channel.close("it was ended");
        if let Some(link) = &self.0.link {
            link.hang_up();
            link.end_tools();
        }
        self.0.calls.give_up();
        if let Some(home) = &self.0.home {
            home.remove();
        }
    }
}
