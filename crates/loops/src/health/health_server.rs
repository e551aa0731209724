//! HTTP probes of a group, for the tools that start and stop processes.
//!
//! `/livez` and `/health/live`: all loops are alive. `/readyz` and `/health/ready`: all loops take messages. They are
//! not ready while the group drains or ends, or while a mailbox does not work. `/startupz`: all loops have begun. The
//! status is 200 for yes and 503 for no, and the body gives the reason.
//!
//! The server has its own thread and runtime, so that it answers even if handlers block all threads of their runtime.

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

use crate::LoopGroup;

/// The number of connections that are served at the same time.
const MAX_CONNECTIONS: usize = 64;
/// The time that a client has for its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest life of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The server of a group's probes. It closes its socket when it is stopped or dropped.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use snakepit::loops::{HealthServer, LoopGroup, RunOptions};
///
/// # async fn example(group: LoopGroup) -> Result<(), Box<dyn std::error::Error>> {
/// let group = Arc::new(group);
/// let server = HealthServer::start(Arc::clone(&group), 8080).await?;
/// println!("curl http://{}/readyz", server.address());
/// group.run(RunOptions::new()).await?;
/// server.stop().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "probes are answered until this is dropped"]
pub struct HealthServer {
    address: SocketAddr,
    /// The thread ends when this is dropped.
    stop: Option<oneshot::Sender<Infallible>>,
    /// The channel closes when the thread has closed its sockets.
    closed: oneshot::Receiver<Infallible>,
}

impl HealthServer {
    /// Starts a server at this port of the loopback address, which only this machine can reach. Port 0 is any free
    /// port.
    pub async fn start(group: Arc<LoopGroup>, port: u16) -> io::Result<Self> {
        Self::start_at(group, (Ipv4Addr::LOCALHOST, port)).await
    }

    /// Starts a server at this address. `"0.0.0.0:8080"` and `"[::]:8080"` are all addresses of this machine.
    /// Kubernetes needs them, because it asks at the pod's address. Any client that can connect sees the names of the
    /// loops, message ids, and error texts.
    #[expect(
        clippy::unused_async,
        reason = "the address may be a name, and a later version should look it up without blocking"
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
        let (stop, stopped) = oneshot::channel();
        let (closing, closed) = oneshot::channel();
        std::thread::Builder::new().name("snakepit-health".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = stopped => {}
                    () = serve(listener, group) => {}
                }
            });
            drop(runtime);
            drop(closing);
        })?;
        Ok(Self { address, stop: Some(stop), closed })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the socket and all connections, and waits until they are closed.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        // Nothing is ever sent. The channel closes when the thread ends.
        let _ = (&mut self.closed).await;
    }
}

async fn serve(listener: TcpListener, group: Arc<LoopGroup>) {
    // All connections end when this set is dropped.
    let mut connections = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        oldest_first.retain(|connection| !connection.is_finished());
        if oldest_first.len() >= MAX_CONNECTIONS
            && let Some(oldest) = oldest_first.pop_front()
        {
            // Probes are answered at once, so the oldest connection is not a probe and must not block probes.
            oldest.abort();
        }
        tokio::select! {
            accepted = listener.accept() => {
                // The client has left, or no file descriptor is free. The next client may succeed.
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
                        .header_read_timeout(REQUEST_TIMEOUT)
                        .keep_alive(false)
                        .auto_date_header(has_date())
                        .serve_connection(TokioIo::new(stream), service);
                    // A client that disconnects early is not an error.
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
                });
                oldest_first.push_back(connection);
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// Reports whether a response can have a date: hyper panics if the system's clock is before 1970.
#[expect(clippy::disallowed_methods, reason = "hyper reads this clock and no other")]
fn has_date() -> bool {
    std::time::SystemTime::now() >= std::time::UNIX_EPOCH
}

fn answer(request: &Request<Incoming>, group: &LoopGroup) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return response(StatusCode::METHOD_NOT_ALLOWED, "{\"status\":\"method not allowed\"}".into());
    }
    let is_healthy = match request.uri().path() {
        "/livez" | "/health/live" => group.is_alive(),
        "/readyz" | "/health/ready" => group.is_ready(),
        "/startupz" => group.has_started(),
        _ => return response(StatusCode::NOT_FOUND, "{\"status\":\"not found\"}".into()),
    };
    let (status, word) =
        if is_healthy { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "unavailable") };
    let body = serde_json::json!({ "status": word, "loops": group.health() });
    response(status, body.to_string())
}

fn response(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
