//! The handle of an HTTP worker. Each running call has a task.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use hyper::body::{Bytes, Incoming};
use hyper::{Response, StatusCode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::answer::payload::{BodyError, Payload};
use super::answer::stream_splitter::{StreamForm, StreamSplitter};
use super::answer::{self, AnswerBody};
use super::cancellation::RequestCancellation;
use super::client::{Client, Connected, SendError};
use super::listen_address::ToldAddress;
use super::request::{Prepared, Requests};
use crate::OnDrop;
use crate::adapter::timeouts::{DEATH_AFTER_BREAK, LAST_ANSWERS};
use crate::adapter::{
    AtWork, CallAdmission, CancelStage, Credit, Handle, HeldCalls, Introduction, ProtocolFault, Reason,
    StartKnowledge,
};
use crate::call::{Call, CallId, Portion, RemoteError, RemoteErrorKind};
use crate::custody;
use crate::json::Integers;
use crate::transport::Closed;
use crate::value::Encoded;

/// The maximum number of bytes to read from the body of an error.
const LONGEST_ERROR: usize = 256 * 1024;

/// The handle of an HTTP worker.
pub(super) struct HttpHandle {
    process: custody::WorkerProcess,
    /// What the worker was told to listen on, if it listens there.
    told: Option<ToldAddress>,
    client: Arc<Client>,
    /// How often the worker has proved that it accepts connections.
    beats: Arc<AtomicU64>,
    requests: Requests,
    max_body: usize,
    integers: Integers,
    introduction: Introduction,
    /// The runtime of the calls' tasks, independent of the callers' runtimes.
    runtime: tokio::runtime::Handle,
    held: Mutex<HeldCalls<RunningRequest>>,
    /// Notified when a call's task ends.
    concluded: Notify,
    closed: Closed,
}

/// The task of a call.
struct RunningRequest {
    /// `None` while the task is being spawned.
    task: Option<AbortHandle>,
    cancellation: Arc<RequestCancellation>,
    /// Whether the task is over. The call then waits for the end of its worker.
    is_over: bool,
}

/// The end of a call's request. The outer error leaves the call without an outcome.
type RequestOutcome = Result<Result<Encoded, RemoteError>, SendError>;

impl HttpHandle {
    pub(super) fn new(
        (process, told): (custody::WorkerProcess, Option<ToldAddress>),
        client: Client,
        requests: Requests,
        (max_body, concurrency): (usize, usize),
        introduction: Introduction,
    ) -> Self {
        Self {
            process,
            told,
            client: Arc::new(client),
            beats: Arc::default(),
            requests,
            max_body,
            integers: Integers::of(&introduction.features),
            introduction,
            runtime: tokio::runtime::Handle::current(),
            held: Mutex::new(HeldCalls::new(concurrency)),
            concluded: Notify::new(),
            closed: Closed::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, HeldCalls<RunningRequest>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a function to the task of a call, if the worker holds the call.
    fn running<T>(&self, id: u64, change: impl FnOnce(&mut RunningRequest) -> T) -> Option<T> {
        self.held().get_mut(id).map(|held| change(&mut held.data))
    }

    /// Sends the request and reads the response. `credit` is present if the caller asked for a stream.
    async fn ask(
        &self,
        prepared: Prepared,
        id: u64,
        credit: Option<&Credit>,
        cancellation: &RequestCancellation,
    ) -> RequestOutcome {
        let Prepared { request, reading } = prepared;
        let (response, connected) =
            self.client.send(request, |carrier| cancellation.travels_by(carrier)).await?;
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            return Ok(Err(self.error(status, response, connected).await?));
        }
        if !status.is_success() {
            let message =
                format!("the worker answered with {status}, which is neither a result nor an error");
            return Ok(Err(answer::bad_value(message)));
        }
        let body = AnswerBody::of(status, response.headers(), reading);
        match (body, credit) {
            // The stream is not read first, because it may be endless.
            (AnswerBody::Stream(_), None) => Ok(body.value(Bytes::new(), self.integers)),
            (body, asked) => {
                if let (Some(form), Some(credit)) = (body.as_stream(), asked) {
                    return self.stream(response, connected, form, (id, credit), cancellation).await;
                }
                let said = self.collect(response, connected).await?;
                let value = said.and_then(|said| body.value(said, self.integers));
                if let (Some(_), Ok(value)) = (asked, &value) {
                    // The result of a command that does not stream becomes the only item.
                    self.held().item(id, value.clone());
                }
                Ok(value)
            }
        }
    }

    /// Reads the complete body. Afterwards, the connection can be reused.
    async fn collect(
        &self,
        response: Response<Incoming>,
        connected: Connected,
    ) -> Result<Result<Bytes, RemoteError>, SendError> {
        let mut body = match Payload::of(response, connected) {
            Ok(body) => body,
            Err(error) => return Ok(Err(error)),
        };
        match answer::collect(&mut body, self.max_body).await {
            Ok(said) => {
                self.client.give_back(body.into_connected());
                Ok(Ok(said))
            }
            Err(error) => self.unread(error).map(Err),
        }
    }

    /// Returns the error of a response that cannot be read.
    fn unread(&self, error: BodyError) -> Result<RemoteError, SendError> {
        match error {
            BodyError::Broken(error) => Err(SendError::Broken(error)),
            BodyError::TooLong => Ok(self.too_long()),
            BodyError::Undecodable(error) => Ok(answer::bad_value(format!(
                "the worker's answer is not gzip, although its header says so: {error}"
            ))),
        }
    }

    /// Reads the error of a response. The beginning of a long one is enough.
    async fn error(
        &self,
        status: StatusCode,
        response: Response<Incoming>,
        connected: Connected,
    ) -> Result<RemoteError, SendError> {
        // The status counts even if the body cannot be decoded.
        let Ok(mut body) = Payload::of(response, connected) else { return Ok(answer::error(status, b"")) };
        let (said, is_whole) = match answer::beginning(&mut body, self.max_body.min(LONGEST_ERROR)).await {
            Ok(read) => read,
            Err(BodyError::Broken(error)) => return Err(SendError::Broken(error)),
            Err(BodyError::TooLong | BodyError::Undecodable(_)) => (Vec::new(), false),
        };
        if is_whole {
            self.client.give_back(body.into_connected());
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
        form: StreamForm,
        (id, credit): (u64, &Credit),
        cancellation: &RequestCancellation,
    ) -> RequestOutcome {
        // A worker in the middle of a stream notices a cancellation when it sends the next piece.
        drop(cancellation.carrier().take());
        let mut body = match Payload::of(response, connected) {
            Ok(body) => body,
            Err(error) => return Ok(Err(error)),
        };
        let mut splitter = StreamSplitter::new(form, self.max_body);
        loop {
            let data = match body.next().await {
                Ok(data) => data,
                Err(error) => return self.unread(error).map(Err),
            };
            let is_over = data.is_none();
            splitter.feed(&data.unwrap_or_default());
            while let Some(piece) = splitter.next().or_else(|| if is_over { splitter.rest() } else { None }) {
                match answer::item(piece, self.integers) {
                    Ok(Some(item)) => {
                        self.held().item(id, item);
                        // Meanwhile, the socket blocks the worker.
                        credit.available().await;
                    }
                    Ok(None) => return Ok(Ok(Encoded::nil())),
                    Err(error) => return Ok(Err(error)),
                }
            }
            if is_over {
                self.client.give_back(body.into_connected());
                return Ok(Ok(Encoded::nil()));
            }
            if splitter.waiting() > self.max_body {
                return Ok(Err(self.too_long()));
            }
        }
    }

    /// Waits for the end of a cancelled call. The call ends once the worker has closed the request too, or has
    /// answered. A worker that has done neither is busy, and not free for other calls.
    async fn call_off(
        &self,
        asked: Pin<Box<dyn Future<Output = RequestOutcome> + Send + '_>>,
        cancellation: &RequestCancellation,
    ) -> RequestOutcome {
        let carrier = cancellation.carrier().take();
        match carrier {
            None if !cancellation.is_sent() => {}
            None => {
                // The connection is closed in the middle of the response.
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
        Ok(Err(RemoteError::new(RemoteErrorKind::Cancelled, "the request was closed")))
    }

    /// Finishes a call whose task is over, or leaves it to the end of its worker.
    async fn conclude(&self, id: u64, outcome: RequestOutcome) {
        let lost = match outcome {
            Ok(outcome) => return self.finish(id, outcome),
            Err(lost) => lost,
        };
        let exited = tokio::time::timeout(DEATH_AFTER_BREAK, self.process.exited()).await;
        // On a busy machine, the notice of the exit may arrive late.
        let is_dead = exited.is_ok() || has_ended(&self.process);
        match lost {
            SendError::Unreachable(_) | SendError::NoConnection(_) | SendError::Unsent(_) if is_dead => {
                self.held().not_sent(id);
            }
            // The call fails with the end of its worker, which is being investigated.
            SendError::Broken(_) if is_dead => {}
            SendError::Unreachable(why) => {
                // The worker is about to be replaced.
                let mut held = self.held();
                held.not_sent(id);
                held.close();
                drop(held);
                self.closed.close(ProtocolFault::unreachable(why));
            }
            SendError::NoConnection(why) => {
                let message = format!("no connection to the worker can be opened: {why}");
                self.finish(id, Err(RemoteError::new(RemoteErrorKind::Exception, message)));
            }
            SendError::Unsent(why) => {
                let message = format!("the worker closed the connection, and has not begun the call: {why}");
                self.finish(id, Err(RemoteError::new(RemoteErrorKind::Refused, message)));
            }
            SendError::Broken(why) => {
                let message = format!("the worker's connection broke before it had answered: {why}");
                self.finish(id, Err(RemoteError::new(RemoteErrorKind::Exception, message)));
            }
        }
    }

    fn finish(&self, id: u64, outcome: Result<Encoded, RemoteError>) {
        let mut held = self.held();
        let Some(taken) = held.take(id) else { return };
        let service = held.service_time(&taken);
        drop(held);
        taken.finish_after(service, outcome);
    }
}

impl Handle for HttpHandle {
    fn process(&self) -> Option<&custody::WorkerProcess> {
        Some(&self.process)
    }

    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn execute(self: Arc<Self>, call: Call) {
        if self.introduction.ignores(call.command()) {
            return call.finish(Ok(Encoded::nil()));
        }
        let prepare = |call: &Call| self.requests.prepare(call, self.integers);
        let Some((call, prepared)) = crate::prepared(call, prepare) else { return };
        let id = call.id().get();
        let cancellation = Arc::new(RequestCancellation::default());
        let mut held = self.held();
        match held.begin(
            call,
            RunningRequest { task: None, cancellation: Arc::clone(&cancellation), is_over: false },
        ) {
            CallAdmission::ToSend(begun) if begun.call.is_abandoned() => {
                // The caller abandoned the call before it arrived here, when the worker could not be asked to cancel
                // it.
                cancellation.cancelled.notify_one();
            }
            CallAdmission::ToSend(_) => {}
            CallAdmission::Kept => return,
            CallAdmission::Refused(call) => {
                // The call was assigned to this worker before the worker's end was known.
                drop(held);
                return call.give_back();
            }
        }
        // From here on, the task may send the request at any time.
        held.sent(id);
        let credit = held.credit(id);
        drop(held);
        let worker = Arc::clone(&self);
        let task = self.runtime.spawn(async move {
            let mut asked: Pin<Box<dyn Future<Output = RequestOutcome> + Send + '_>> =
                Box::pin(worker.ask(prepared, id, credit.as_deref(), &cancellation));
            let answered = tokio::select! {
                biased;
                () = cancellation.cancelled.notified() => None,
                outcome = &mut asked => Some(outcome),
            };
            let outcome = match answered {
                Some(outcome) => {
                    drop(asked);
                    outcome
                }
                None => worker.call_off(asked, &cancellation).await,
            };
            worker.conclude(id, outcome).await;
            worker.running(id, |running| running.is_over = true);
            worker.concluded.notify_waiters();
        });
        let is_noted = self.running(id, |running| running.task = Some(task.abort_handle()));
        if is_noted.is_none() {
            // The call or its worker has already ended.
            task.abort();
        }
    }

    fn cancel(&self, call: CallId, _stage: CancelStage) {
        self.running(call.get(), |running| running.cancellation.cancelled.notify_one());
        self.held().release_stream(call.get());
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
        self.held().grant(call.get(), more);
    }

    fn at_work(&self) -> Vec<AtWork> {
        self.held().at_work()
    }

    fn broken(&self) -> BoxFuture<'_, ProtocolFault> {
        async { self.closed.reason().await }.boxed()
    }

    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()> {
        async move {
            let _tasks = OnDrop(|| self.end_tasks());
            if matches!(reason, Reason::Died | Reason::Broken(_)) {
                // Answers that the worker gave may still be in a socket, and other tasks may be about to find the
                // worker gone.
                let _ = tokio::time::timeout(LAST_ANSWERS, self.all_concluded()).await;
            }
        }
        .boxed()
    }
}

impl HttpHandle {
    /// Aborts all tasks. Their calls are lost with the worker, except those that it never received.
    fn end_tasks(&self) {
        self.client.close();
        self.told.iter().for_each(ToldAddress::remove);
        let ended = self.held().end(StartKnowledge::Unknown);
        for (at_end, held) in ended {
            held.data.task.iter().for_each(AbortHandle::abort);
            held.settle(at_end);
        }
    }

    /// Waits until no call's task is running.
    async fn all_concluded(&self) {
        loop {
            let concluded = self.concluded.notified();
            if self.held().iter().all(|held| held.data.is_over) {
                return;
            }
            concluded.await;
        }
    }
}

/// Reports whether the main process of a worker has ended, even if its exit was not yet reported.
fn has_ended(process: &custody::WorkerProcess) -> bool {
    let pidfd = process.pidfd();
    let mut polled = [PollFd::new(&pidfd, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
