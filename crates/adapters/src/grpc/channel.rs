//! The one HTTP/2 connection to a worker.
//!
//! This is not tonic's own channel, which reconnects silently: after the connection broke, another process may answer
//! at the same address, and the pool must learn of the break at once. RPCs are streams of this connection.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use http::uri::{PathAndQuery, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::dispatcher::Dispatch;
use tracing::instrument::WithSubscriber;

use super::codec::{ReplyCodec, RpcReply};
use crate::adapter::{ProtocolFault, WorkerChannel};
use crate::custody;
use crate::error_text::with_causes;
use crate::listener::Listener;
use crate::logging::quiet_subscriber;
use crate::ready_line::Address;
use crate::transport::Closed;

/// The flow-control window of one stream. An unread stream uses this much of the host's memory before it blocks its
/// worker.
const STREAM_WINDOW: u32 = 256 << 10;
/// The flow-control window of the connection. Unread streams must not block the others, and calls are bounded
/// elsewhere.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// The maximum size of the parts of a message other than its value.
const AROUND: usize = 1 << 20;

/// The metadata key under which a worker on TCP receives its secret.
const SECRET: &str = "snakepit-secret";

#[derive(Clone)]
pub(super) struct Channel {
    requests: SendRequest<Body>,
    tasks: Tasks,
    secret: Option<MetadataValue<Ascii>>,
    limit: usize,
    closed: Arc<Closed>,
}

impl Channel {
    /// Connects to the worker and checks that it speaks HTTP/2. The secret is sent only over TCP, where other users can
    /// connect, too.
    pub(super) async fn connect(
        address: &Address,
        process: &custody::WorkerProcess,
        secret: &str,
        max_frame: usize,
    ) -> Result<Self, ProtocolFault> {
        match address {
            Address::Socket(path) => {
                let socket = UnixStream::connect(path).await.map_err(ProtocolFault::unreachable)?;
                Self::greet(socket, None, max_frame).await
            }
            Address::Port(port) => {
                let socket = Listener::new(process.clone(), *port)
                    .connect()
                    .await
                    .map_err(ProtocolFault::unreachable)?;
                let secret = MetadataValue::try_from(secret).map_err(|error| error.to_string())?;
                Self::greet(socket, Some(secret), max_frame).await
            }
        }
    }

    async fn greet(
        socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        secret: Option<MetadataValue<Ascii>>,
        max_frame: usize,
    ) -> Result<Self, ProtocolFault> {
        let tasks = Tasks { runtime: Handle::current(), subscriber: quiet_subscriber() };
        let mut http = Builder::new(tasks.clone());
        http.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
        let greeted = http.handshake(TokioIo::new(socket)).with_subscriber(tasks.subscriber.clone()).await;
        let (requests, connection) =
            greeted.map_err(|error| ProtocolFault::NotHttp2 { error: error.to_string() })?;
        let closed = Arc::new(Closed::default());
        let channel = Self { requests, tasks, secret, limit: max_frame + AROUND, closed };
        let own = Arc::clone(&channel.closed);
        channel.spawn(async move {
            own.close(match connection.await {
                Ok(()) => ProtocolFault::Closed(WorkerChannel::Connection),
                Err(error) => ProtocolFault::broke(WorkerChannel::Connection, with_causes(&error)),
            });
        });
        Ok(channel)
    }

    /// Runs a task of this connection in the pool's runtime, whatever the caller's runtime is.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.tasks.spawn(work)
    }

    /// Returns the same connection with a lower limit on the size of messages.
    pub(super) fn limited(&self, limit: usize) -> Self {
        Self { limit: self.limit.min(limit), ..self.clone() }
    }

    fn grpc(&self) -> Grpc<Self> {
        Grpc::with_origin(self.clone(), Uri::from_static("http://localhost"))
            .max_decoding_message_size(self.limit)
            .max_encoding_message_size(self.limit)
    }

    fn request<M>(&self, message: M, remaining: Option<Duration>) -> Request<M> {
        let mut request = Request::new(message);
        if let Some(remaining) = remaining {
            request.set_timeout(remaining);
        }
        if let Some(secret) = &self.secret {
            request.metadata_mut().insert(SECRET, secret.clone());
        }
        request
    }

    /// Sends one message and returns one reply.
    pub(super) async fn unary<M, R>(
        &self,
        path: &'static str,
        message: M,
        remaining: Option<Duration>,
    ) -> Result<R, Status>
    where
        M: Message + 'static,
        R: RpcReply,
    {
        let request = self.request(message, remaining);
        let codec = ReplyCodec::<M, R>::default();
        Ok(self.grpc().unary(request, PathAndQuery::from_static(path), codec).await?.into_inner())
    }

    /// Sends messages and returns a stream of replies.
    pub(super) async fn stream<M, R>(
        &self,
        path: &'static str,
        messages: impl Stream<Item = M> + Send + 'static,
        remaining: Option<Duration>,
    ) -> Result<Streaming<R>, Status>
    where
        M: Message + 'static,
        R: RpcReply,
    {
        let request = self.request(messages, remaining);
        let codec = ReplyCodec::<M, R>::default();
        let answered = self.grpc().streaming(request, PathAndQuery::from_static(path), codec).await;
        answered.map(Response::into_inner)
    }

    /// Marks the connection as closed. Does not close the socket.
    pub(super) fn close(&self, fault: ProtocolFault) {
        self.closed.close(fault);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_told()
    }

    /// Waits until the connection is closed. Returns the reason.
    pub(super) async fn closed(&self) -> ProtocolFault {
        self.closed.reason().await
    }
}

/// Runs the tasks of a connection in the runtime of its pool, because a caller's runtime may end before the call
/// does.
#[derive(Clone)]
struct Tasks {
    runtime: Handle,
    /// Limits what the libraries behind gRPC may log. Created once, because creating it for each task is expensive.
    subscriber: Dispatch,
}

impl Tasks {
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        // The block drops the finished work within this subscriber.
        let work = async move {
            work.await;
        };
        self.runtime.spawn(work.with_subscriber(self.subscriber.clone())).abort_handle()
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, work: F) {
        self.spawn(work);
    }
}

/// What ended an RPC that has no reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RpcEnd {
    /// The worker sent a status.
    WithStatus,
    /// The worker or its deadline cancelled the stream.
    Cancelled,
    /// The connection ended. The error then comes from the end of the worker, not from the RPC.
    WithConnection,
}

pub(super) fn ended(status: &Status) -> RpcEnd {
    if matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded) {
        return RpcEnd::Cancelled;
    }
    let mut source = std::error::Error::source(status);
    let from_the_wire = source.is_some();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return match (error.is_reset(), error.reason()) {
                (true, Some(h2::Reason::CANCEL)) => RpcEnd::Cancelled,
                (true, _) => RpcEnd::WithStatus,
                (false, _) => RpcEnd::WithConnection,
            };
        }
        source = error.source();
    }
    if from_the_wire { RpcEnd::WithConnection } else { RpcEnd::WithStatus }
}

impl GrpcService<Body> for Channel {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, hyper::Result<http::Response<Incoming>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.requests.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.requests.send_request(request))
    }
}
