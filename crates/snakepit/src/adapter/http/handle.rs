//! A worker behind HTTP: a task for each call that is under way.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::answer::{self, Body};
use super::client::{Client, Connected, SendError};
use super::flow::Flow;
use super::payload::{BodyError, Payload};
use super::pieces::{Form, Pieces};
use super::place::Reserved;
use super::request::{Prepared, Requests};
use crate::adapter::json::Integers;
use crate::adapter::lost::LostCalls;
use crate::adapter::{AtWork, CancelStage, Handle, Introduction, Reason};
use crate::call::{Call, CallError, CallId, Input, Portion, RemoteError};
use crate::custody;
use crate::pool::AUTOPSY_PATIENCE;
use crate::transport::Closed;
use crate::value::Encoded;

/// A connection that breaks is most often the first sign of a death: so long is waited for the death itself.
const DEATH_PATIENCE: Duration = Duration::from_millis(200);

/// So much is read of an answer that is an error.
const LONGEST_ERROR: usize = 256 * 1024;

/// See the module.
pub(super) struct HttpHandle {
    process: custody::Worker,
    /// What it listens on.
    reserved: Reserved,
    client: Arc<Client>,
    /// How often it has shown that it takes connections.
    beats: Arc<AtomicU64>,
    requests: Requests,
    max_body: usize,
    integers: Integers,
    introduction: Introduction,
    /// Where calls get their tasks, whoever hands them over.
    runtime: tokio::runtime::Handle,
    running: Mutex<HashMap<CallId, Running>>,
    lost: LostCalls,
    /// A call is not under way any more.
    concluded: Notify,
    closed: Closed,
}

/// A call that is under way.
struct Running {
    /// None for the moment in which it is made.
    task: Option<AbortHandle>,
    flow: Arc<Flow>,
    command: Arc<str>,
    since: Instant,
}

/// Why a call has no outcome.
enum Lost {
    /// The worker cannot be reached at all, and has not heard of it.
    Unreachable(String),
    /// There is no connection for this call.
    NoConnection(String),
    /// The connection of this call broke before the worker heard of it.
    Unsent(String),
    /// The connection of this call broke.
    Broken(String),
}

impl From<SendError> for Lost {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Unreachable(error) => {
                Self::Unreachable(format!("it does not listen where it said: {error}"))
            }
            SendError::NoConnection(error) => Self::NoConnection(error.to_string()),
            SendError::Unsent(error) => Self::Unsent(error.to_string()),
            SendError::Broken(error) => Self::Broken(error.to_string()),
        }
    }
}

type Outcome = Result<Result<Encoded, RemoteError>, Lost>;

impl HttpHandle {
    pub(super) fn new(
        (process, reserved): (custody::Worker, Reserved),
        client: Client,
        requests: Requests,
        max_body: usize,
        introduction: Introduction,
    ) -> Self {
        Self {
            process,
            reserved,
            client: Arc::new(client),
            beats: Arc::default(),
            requests,
            max_body,
            integers: Integers::of(&introduction.features),
            introduction,
            runtime: tokio::runtime::Handle::current(),
            running: Mutex::default(),
            lost: LostCalls::new(),
            concluded: Notify::new(),
            closed: Closed::default(),
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<CallId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, prepared: Prepared, call: &Call, flow: &Flow) -> Outcome {
        let Prepared { request, reading } = prepared;
        let (response, connected) = self.client.send(request, |carrier| flow.travels_by(carrier)).await?;
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            return Ok(Err(self.error(status, response, connected).await?));
        }
        if !status.is_success() {
            let message =
                format!("the worker answered with {status}, which is neither a result nor an error");
            return Ok(Err(answer::bad_value(message)));
        }
        let body = Body::of(status, response.headers(), reading);
        match (body, call.stream_credit()) {
            // Not read first: it may have no end.
            (Body::Stream(_), None) => Ok(body.value(Vec::new(), self.integers)),
            (body, asked) => {
                if let (Some(form), Some(credit)) = (body.as_stream(), asked) {
                    return self.stream(response, connected, form, (call, credit), flow).await;
                }
                let said = self.collect(response, connected).await?;
                let value = said.and_then(|said| body.value(said, self.integers));
                if let (Some(_), Ok(value)) = (asked, &value) {
                    // A command that does not stream has one value.
                    call.send_item(value.clone());
                }
                Ok(value)
            }
        }
    }

    /// The whole body. The connection can be used again.
    async fn collect(
        &self,
        response: Response<Incoming>,
        connected: Connected,
    ) -> Result<Result<Vec<u8>, RemoteError>, Lost> {
        let body = match Payload::of(response) {
            Ok(body) => body,
            Err(error) => return Ok(Err(error)),
        };
        match answer::collect(body, self.max_body).await {
            Ok(body) => {
                self.client.give_back(connected);
                Ok(Ok(body))
            }
            Err(error) => self.unread(error).map(Err),
        }
    }

    /// What became of an answer that cannot be read.
    fn unread(&self, error: BodyError) -> Result<RemoteError, Lost> {
        match error {
            BodyError::Broken(error) => Err(Lost::Broken(error.to_string())),
            BodyError::TooLong => Ok(self.too_long()),
            BodyError::Undecodable(error) => Ok(answer::bad_value(format!(
                "the worker's answer is not the gzip that it says it is: {error}"
            ))),
        }
    }

    /// What an answer says that is an error. Of one that is long, its beginning is enough.
    async fn error(
        &self,
        status: StatusCode,
        response: Response<Incoming>,
        connected: Connected,
    ) -> Result<RemoteError, Lost> {
        // One that cannot be decoded has its status still.
        let Ok(body) = Payload::of(response) else { return Ok(answer::error(status, b"")) };
        let (said, is_whole) = match answer::beginning(body, self.max_body.min(LONGEST_ERROR)).await {
            Ok(read) => read,
            Err(BodyError::Broken(error)) => return Err(Lost::Broken(error.to_string())),
            Err(BodyError::TooLong | BodyError::Undecodable(_)) => (Vec::new(), false),
        };
        if is_whole {
            self.client.give_back(connected);
        }
        Ok(answer::error(status, &said))
    }

    fn too_long(&self) -> RemoteError {
        answer::bad_value(format!("the worker's answer is longer than max_frame ({} bytes)", self.max_body))
    }

    async fn stream(
        &self,
        response: Response<Incoming>,
        connected: Connected,
        form: Form,
        (call, credit): (&Call, Portion),
        flow: &Flow,
    ) -> Outcome {
        // One that is in the middle of a stream hears of its end by its next piece.
        drop(flow.carrier().take());
        let mut body = match Payload::of(response) {
            Ok(body) => body,
            Err(error) => return Ok(Err(error)),
        };
        let mut pieces = Pieces::new(form, self.max_body);
        loop {
            let data = match body.next().await {
                Ok(data) => data,
                Err(error) => return self.unread(error).map(Err),
            };
            let is_over = data.is_none();
            pieces.feed(&data.unwrap_or_default());
            while let Some(piece) = pieces.next().or_else(|| if is_over { pieces.rest() } else { None }) {
                match answer::item(piece, self.integers) {
                    Ok(Some(item)) => flow.pass(call, credit, item).await,
                    Ok(None) => return Ok(Ok(Encoded::nil())),
                    Err(error) => return Ok(Err(error)),
                }
            }
            if is_over {
                self.client.give_back(connected);
                return Ok(Ok(Encoded::nil()));
            }
            if pieces.waiting() > self.max_body {
                return Ok(Err(self.too_long()));
            }
        }
    }

    /// A call that was cancelled is over when its worker has closed the request, too, or has answered: one that does neither is
    /// busy, and not free for others.
    async fn call_off(
        &self,
        asked: Pin<Box<dyn Future<Output = Outcome> + Send + '_>>,
        flow: &Flow,
    ) -> Outcome {
        let carrier = flow.carrier().take();
        match carrier {
            None if !flow.is_sent() => {}
            None => {
                // Closed, in the middle of its answer.
                drop(asked);
                self.client.answers().await;
            }
            Some(carrier) => {
                carrier.hang_up();
                match asked.await {
                    Ok(outcome) => return Ok(outcome),
                    Err(lost) if self.process.try_wait().is_some() => return Err(lost),
                    Err(_) => carrier.closed().await,
                }
            }
        }
        Ok(Err(RemoteError::new("cancelled", "the request was closed")))
    }

    /// A call whose connection broke: with its worker, or alone.
    async fn conclude(&self, call: Call, since: Instant, outcome: Outcome) {
        let lost = match outcome {
            Ok(outcome) => return call.finish_after(since.elapsed(), outcome),
            Err(lost) => lost,
        };
        let exited = tokio::time::timeout(DEATH_PATIENCE, self.process.exited()).await;
        // On a busy machine the word of its end may come later than the end.
        let is_dead = exited.is_ok() || has_ended(&self.process);
        match lost {
            Lost::Unreachable(_) | Lost::NoConnection(_) | Lost::Unsent(_) if is_dead => {
                self.lost.keep_unsent(call);
            }
            // It fails with the end of its worker, which is looked into.
            Lost::Broken(_) if is_dead => self.lost.keep(call),
            Lost::Unreachable(why) => {
                // The worker is about to be replaced.
                self.lost.keep_unsent(call);
                self.closed.close(&why);
            }
            Lost::NoConnection(why) => {
                let message = format!("there is no connection to the worker to be had: {why}");
                call.finish(Err(RemoteError::new("exception", message)));
            }
            Lost::Unsent(why) => {
                let message = format!("the worker closed the connection, and has not begun the call: {why}");
                call.finish(Err(RemoteError::new("refused", message)));
            }
            Lost::Broken(why) => {
                let message = format!("the worker's connection broke before it had answered: {why}");
                call.finish(Err(RemoteError::new("exception", message)));
            }
        }
    }
}

impl Handle for HttpHandle {
    fn process(&self) -> Option<&custody::Worker> {
        Some(&self.process)
    }

    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn execute(self: Arc<Self>, call: Call) {
        let name = call.command();
        if name.starts_with("snakepit.") && !self.introduction.commands.iter().any(|known| known == name) {
            // The engine asks whether it is well, or tells that a session is over: it has no opinion.
            return call.finish(Ok(Encoded::nil()));
        }
        if let Input::Many(_) = call.input() {
            return call.finish(Err(RemoteError::new("refused", "this worker takes one call at a time")));
        }
        let prepared = match self.requests.prepare(&call, self.integers) {
            Ok(prepared) => prepared,
            Err(source) => {
                let command = call.command().to_owned();
                return call.fail(CallError::Arguments { command, source });
            }
        };
        let (id, command, since) = (call.id(), Arc::clone(&call.command.name), Instant::now());
        let flow = Arc::new(Flow::default());
        if call.is_abandoned() {
            flow.cancelled.notify_one();
        }
        let (worker, its_flow) = (Arc::clone(&self), Arc::clone(&flow));
        // Locked until it is noted: so either this sees the worker's end, or the end sees this.
        let mut running = self.running();
        if self.lost.is_over() {
            // It was chosen for this worker before the worker's end was known.
            drop(running);
            return call.give_back();
        }
        running.insert(id, Running { task: None, flow, command, since });
        drop(running);
        let task = self.runtime.spawn(async move {
            let mut asked: Pin<Box<dyn Future<Output = Outcome> + Send + '_>> =
                Box::pin(worker.ask(prepared, &call, &its_flow));
            let answered = tokio::select! {
                biased;
                () = its_flow.cancelled.notified() => None,
                outcome = &mut asked => Some(outcome),
            };
            let outcome = match answered {
                Some(outcome) => {
                    drop(asked);
                    outcome
                }
                None => worker.call_off(asked, &its_flow).await,
            };
            worker.conclude(call, since, outcome).await;
            worker.running().remove(&id);
            worker.concluded.notify_waiters();
        });
        match self.running().get_mut(&id) {
            Some(running) => running.task = Some(task.abort_handle()),
            // It has its end, or the worker has.
            None => task.abort(),
        }
    }

    fn cancel(&self, call: CallId, _stage: CancelStage) {
        if let Some(running) = self.running().get(&call) {
            running.flow.cancelled.notify_one();
        }
    }

    fn ask_beat(&self) {
        let (client, beats) = (Arc::clone(&self.client), Arc::clone(&self.beats));
        self.runtime.spawn(async move {
            if client.answers().await {
                beats.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    fn beats(&self) -> Option<u64> {
        Some(self.beats.load(Ordering::Relaxed))
    }

    fn grant(&self, call: CallId, more: Portion) {
        if let Some(running) = self.running().get(&call) {
            let mut ahead = running.flow.ahead();
            ahead.items = ahead.items.saturating_sub(more.items);
            ahead.bytes = ahead.bytes.saturating_sub(more.bytes);
            drop(ahead);
            running.flow.granted.notify_one();
        }
    }

    fn at_work(&self) -> Vec<AtWork> {
        let running = self.running();
        let at_work = running.iter().map(|(&call, Running { command, since, .. })| AtWork {
            call,
            command: Arc::clone(command),
            since: *since,
        });
        at_work.collect()
    }

    fn broken(&self) -> BoxFuture<'_, String> {
        async { self.closed.reason().await.to_string() }.boxed()
    }

    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()> {
        async move {
            let _tasks = EndTasks(self);
            if matches!(reason, Reason::Died | Reason::Broken(_)) {
                // What it had answered may be on its way through a socket, and others may be about to find it gone.
                let _ = tokio::time::timeout(AUTOPSY_PATIENCE / 4, self.all_concluded()).await;
            }
        }
        .boxed()
    }
}

impl HttpHandle {
    /// Until no call is under way.
    async fn all_concluded(&self) {
        loop {
            let concluded = self.concluded.notified();
            if self.running().is_empty() {
                return;
            }
            concluded.await;
        }
    }
}

/// Ends what is under way, when it is dropped: the calls are lost with their worker, but for those that it never heard of.
struct EndTasks<'a>(&'a HttpHandle);

impl Drop for EndTasks<'_> {
    fn drop(&mut self) {
        self.0.client.close();
        self.0.reserved.remove();
        // First: whoever is noted among the running ones afterwards sees that it is over.
        self.0.lost.end();
        let running = std::mem::take(&mut *self.0.running());
        running.into_values().filter_map(|running| running.task).for_each(|task| task.abort());
    }
}

/// Whether the main process of a worker has ended, whoever has heard of it.
fn has_ended(process: &custody::Worker) -> bool {
    let pidfd = process.pidfd();
    let mut polled = [PollFd::new(&pidfd, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
