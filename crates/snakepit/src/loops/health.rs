//! Probes of a group over HTTP, for those who start and end processes.
//!
//! `/livez` and `/health/live`: all loops turn. `/readyz` and `/health/ready`: they take messages; not while the group drains or
//! ends, nor while a mailbox does not work. `/startupz`: all have begun. 200 is yes, 503 no, and the body says why.
//!
//! It has a thread and a runtime of its own: handlers that block all threads of theirs do not keep probes from their answers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

use super::LoopGroup;

/// How many probes are answered at the same time.
const MOST_CONNECTIONS: usize = 64;
/// How long a client may take with its request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// How long a connection may last in all.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);

/// The probes of a group. Its socket is closed when it is stopped, or dropped.
#[derive(Debug)]
#[must_use = "probes are answered until this is dropped"]
pub struct HealthServer {
    address: SocketAddr,
    /// Dropped, it ends the thread.
    over: Option<oneshot::Sender<Infallible>>,
    /// Answers when the thread has closed its sockets.
    closed: oneshot::Receiver<Infallible>,
}

impl HealthServer {
    /// Answers probes at this port of the loopback, which only this machine reaches; 0 is any free one.
    pub async fn start(group: Arc<LoopGroup>, port: u16) -> io::Result<Self> {
        Self::start_at(group, (Ipv4Addr::LOCALHOST, port)).await
    }

    /// Answers probes at this address: `"0.0.0.0:8080"` and `"[::]:8080"` are all of this machine's, which Kubernetes needs, for it
    /// asks at the pod's. Whoever can reach it can see the names of the loops, the ids of messages, and what troubles them.
    #[expect(
        clippy::unused_async,
        reason = "the address may be a name, and its look-up should not block for ever"
    )]
    pub async fn start_at(group: Arc<LoopGroup>, address: impl ToSocketAddrs) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _within = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (over, ends) = oneshot::channel();
        let (closes, closed) = oneshot::channel();
        std::thread::Builder::new().name("snakepit-health".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = ends => {}
                    () = serve(listener, group) => {}
                }
            });
            drop(runtime);
            drop(closes);
        })?;
        Ok(Self { address, over: Some(over), closed })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes its socket and all connections, and waits until that is done.
    pub async fn stop(mut self) {
        drop(self.over.take());
        // Nothing is ever sent: it ends with the thread.
        let _ = (&mut self.closed).await;
    }
}

async fn serve(listener: TcpListener, group: Arc<LoopGroup>) {
    // Dropped with this task, and all connections with it.
    let mut connections = JoinSet::new();
    // The oldest first.
    let mut ends: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        ends.retain(|connection| !connection.is_finished());
        if ends.len() >= MOST_CONNECTIONS
            && let Some(oldest) = ends.pop_front()
        {
            // A probe is answered in no time. Whoever has been here longest is not one, and must not keep out those who are.
            oldest.abort();
        }
        tokio::select! {
            accepted = listener.accept() => {
                // A client that left at once, or no descriptor left: the next one may be luckier.
                let Ok((stream, _)) = accepted else {
                    tokio::task::yield_now().await;
                    continue;
                };
                let group = Arc::clone(&group);
                let connection = connections.spawn(async move {
                    let service = service_fn(move |request| {
                        std::future::ready(Ok::<_, Infallible>(answer(&request, &group)))
                    });
                    let served = hyper::server::conn::http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(REQUEST_LIMIT)
                        .keep_alive(false)
                        // hyper cannot say a date before 1970, and panics.
                        .auto_date_header(std::time::SystemTime::now() >= std::time::UNIX_EPOCH)
                        .serve_connection(TokioIo::new(stream), service);
                    // A client that leaves in the middle is its own matter.
                    let _ = tokio::time::timeout(CONNECTION_LIMIT, served).await;
                });
                ends.push_back(connection);
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

fn answer(request: &Request<Incoming>, group: &LoopGroup) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return response(StatusCode::METHOD_NOT_ALLOWED, "{\"status\":\"method not allowed\"}".into());
    }
    let holds = match request.uri().path() {
        "/livez" | "/health/live" => group.is_alive(),
        "/readyz" | "/health/ready" => group.is_ready(),
        "/startupz" => group.has_started(),
        _ => return response(StatusCode::NOT_FOUND, "{\"status\":\"not found\"}".into()),
    };
    let (status, word) =
        if holds { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "unavailable") };
    let body = serde_json::json!({ "status": word, "loops": group.health() });
    response(status, body.to_string())
}

fn response(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
