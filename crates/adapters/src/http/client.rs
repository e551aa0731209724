//! Connections to one worker, one per running request. A connection is reused while the worker keeps it open.
//!
//! A connection has no task of its own: the task of the call that uses it drives it ([`Connected::drive`]). With a
//! task for each, every request and every piece of an answer would wake another task, often on another thread.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, sockopt};
use tokio::net::UnixStream;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::stream::BodyStream;
use crate::listener::Listener;
#[cfg(target_os = "linux")]
use crate::listener::refusal;

/// How long an idle connection may be reused. Servers close idle connections, most of them after five seconds or
/// more. If one is closed at the moment of a request, it is unknown whether the worker received the request.
const IDLE: Duration = Duration::from_secs(2);

/// How long a thread waits for the worker to accept its connection before it checks whether the connection is still
/// wanted.
const IN_LINE: Duration = Duration::from_millis(200);

/// Why a request has no response.
#[derive(Debug)]
pub(super) enum SendError {
    /// No process listens at the worker's address.
    Unreachable(io::Error),
    /// No connection could be opened, for want of descriptors or local ports. Not the worker's fault.
    NoConnection(io::Error),
    /// The connection broke before any of the request was sent.
    Unsent(hyper::Error),
    /// The connection broke, and the worker may have begun.
    Broken(hyper::Error),
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::NotFound => {
                Self::Unreachable(error)
            }
            _ => Self::NoConnection(error),
        }
    }
}

/// A connection in use. It is closed on drop, which tells the worker that nobody waits for the response.
pub(super) struct Connected {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once the connection is over. Dropped then, because that is how its request learns of it.
    connection: Option<Connection<TokioIo<BodyStream>, Full<Bytes>>>,
    stream: BodyStream,
}

impl Connected {
    /// Drives the connection until a future is ready that waits for nothing but this connection.
    ///
    /// The future gets no waker, because the connection advances only here: a task that wakes itself is put at the end
    /// of its queue, and another thread is woken to look at the queue. Without a waker, it must not be asked to yield.
    pub(super) async fn drive<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(unconstrained(future));
        poll_fn(|context| {
            self.advance(context);
            future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await
    }

    /// Reads and writes as much as the socket allows.
    fn advance(&mut self, context: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(context).is_ready()
        {
            // An error of the connection is also the error of the request that it carries.
            self.connection = None;
        }
    }

    /// Waits until a request can be sent.
    async fn ready(&mut self) -> hyper::Result<()> {
        // As in `drive`, the task does not wake itself.
        self.advance(&mut Context::from_waker(Waker::noop()));
        if self.sender.is_ready() {
            return Ok(());
        }
        poll_fn(|context| {
            self.advance(context);
            self.sender.poll_ready(context)
        })
        .await
    }

    async fn try_send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Unanswered> {
        let response = self.sender.try_send_request(request);
        self.drive(response).await
    }
}

type Unanswered = TrySendError<Request<Full<Bytes>>>;

/// The address of the worker.
pub(super) enum ServerAddress {
    /// A Unix socket, and the users that may listen on it.
    Socket(PathBuf, Vec<u32>),
    Port(Arc<Listener>),
}

/// The connections to one worker.
pub(super) struct Client {
    place: ServerAddress,
    /// The most recently used connection is the last.
    idle: Mutex<VecDeque<(Instant, Connected)>>,
}

impl Client {
    pub(super) fn new(place: ServerAddress) -> Self {
        Self { place, idle: Mutex::default() }
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<(Instant, Connected)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and passes the socket that carries it to `travels_by`. Give the connection back once the
    /// response is read.
    pub(super) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        travels_by: impl Fn(&BodyStream),
    ) -> Result<(Response<Incoming>, Connected), SendError> {
        loop {
            let used = self.take_idle();
            let is_fresh = used.is_none();
            let mut connected = match used {
                Some(connected) => connected,
                None => self.connect().await?,
            };
            if let Err(error) = connected.ready().await {
                if is_fresh {
                    return Err(SendError::Unsent(error));
                }
                continue;
            }
            travels_by(&connected.stream);
            match connected.try_send(request).await {
                Ok(response) => return Ok((response, connected)),
                Err(mut error) => match error.take_message() {
                    // The worker closed the idle connection, and none of the request was sent.
                    Some(unsent) if !is_fresh => request = unsent,
                    Some(_) => return Err(SendError::Unsent(error.into_error())),
                    None => return Err(SendError::Broken(error.into_error())),
                },
            }
        }
    }

    /// Makes a connection available for other requests, once its response was read to the end.
    pub(super) fn give_back(&self, mut connected: Connected) {
        // The end of the answer may have been the end of the connection, or the worker has not read all of the request.
        connected.advance(&mut Context::from_waker(Waker::noop()));
        // A worker may answer a request that was cancelled. The host has then shut down its side of the connection.
        if connected.sender.is_ready() && !connected.stream.is_hung_up() {
            self.idle().push_back((Instant::now(), connected));
        }
    }

    fn take_idle(&self) -> Option<Connected> {
        let mut idle = self.idle();
        let now = Instant::now();
        while idle.front().is_some_and(|(since, _)| now.duration_since(*since) >= IDLE) {
            idle.pop_front();
        }
        // Nobody drives an idle connection, so the kernel is asked whether the worker has closed it.
        std::iter::from_fn(|| idle.pop_back()).map(|(_, connected)| connected).find(|it| it.stream.is_quiet())
    }

    /// Closes the idle connections.
    pub(super) fn close(&self) {
        self.idle().clear();
    }

    /// Connects, and closes the connection without a request. Returns whether the worker accepted it and closed its
    /// side, which runs only the code of the server itself. Waits for as long as that takes.
    pub(super) async fn answers(&self) -> bool {
        let Ok(stream) = self.open().await else { return false };
        stream.hang_up();
        stream.closed().await;
        true
    }

    async fn connect(&self) -> Result<Connected, SendError> {
        greet(self.open().await?).await
    }

    /// Opens a connection. Nothing has been sent on it yet.
    pub(super) async fn open(&self) -> io::Result<BodyStream> {
        match &self.place {
            ServerAddress::Socket(path, users) => {
                let stream = connect_unix(path).await?;
                check_peer(&stream, users)?;
                Ok(stream.into())
            }
            ServerAddress::Port(listener) => Ok(listener.connect().await?.into()),
        }
    }
}

/// Rejects a socket on which another user than the worker's listens. Nothing has been sent yet.
#[cfg(target_os = "linux")]
fn check_peer(stream: &UnixStream, users: &[u32]) -> io::Result<()> {
    let listens = sockopt::socket_peercred(stream)?.uid.as_raw();
    if users.contains(&listens) {
        return Ok(());
    }
    let message = format!(
        "a process of user {listens} listens there, and not one of the worker's user, so nothing was sent"
    );
    Err(refusal(message))
}

#[cfg(not(target_os = "linux"))]
fn check_peer(_: &UnixStream, _: &[u32]) -> io::Result<()> {
    Ok(())
}

/// Connects to a Unix socket. If its backlog is full, the kernel lets only blocking callers wait.
async fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let mut connected = UnixStream::connect(path).await;
    while connected.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        let address = SocketAddrUnix::new(path)?;
        let waits = tokio::task::spawn_blocking(move || wait_in_line(&address));
        connected = waits.await.map_err(io::Error::other)?.and_then(|socket| {
            socket.set_nonblocking(true)?;
            UnixStream::from_std(socket)
        });
    }
    connected
}

#[cfg(not(target_vendor = "apple"))]
fn socket_of_our_own() -> io::Result<std::os::fd::OwnedFd> {
    use rustix::net::{SocketFlags, socket_with};
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Apple's systems cannot set the flag in the same step.
#[cfg(target_vendor = "apple")]
fn socket_of_our_own() -> io::Result<std::os::fd::OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

/// Connects, and blocks for a while if the backlog is full.
fn wait_in_line(address: &SocketAddrUnix) -> io::Result<std::os::unix::net::UnixStream> {
    let socket = socket_of_our_own()?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(IN_LINE))?;
    connect(&socket, address)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
    Ok(socket.into())
}

async fn greet(stream: BodyStream) -> Result<Connected, SendError> {
    let shaken = http1::handshake(TokioIo::new(stream.clone())).await;
    let (sender, connection) = shaken.map_err(SendError::Unsent)?;
    Ok(Connected { sender, connection: Some(connection), stream })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use hyper::header;

    use super::super::answer::{self, payload::Payload};
    use super::*;

    fn request() -> Request<Full<Bytes>> {
        Request::post("/x").header(header::HOST, "localhost").body(Full::default()).expect("a request")
    }

    /// Answers requests on one connection until it is closed, and returns how many there were.
    fn serve(listener: &UnixListener, most: usize) -> usize {
        let (mut connection, _) = listener.accept().expect("a connection");
        for served in 0..most {
            let mut read = [0; 1024];
            if connection.read(&mut read).expect("a request") == 0 {
                return served;
            }
            connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").expect("room");
        }
        most
    }

    async fn ask(client: &Client) -> Bytes {
        let sent = client.send(request(), |_| {}).await;
        let (response, connected) = sent.map_err(|error| format!("{error:?}")).expect("a response");
        let mut body = Payload::of(response, connected).expect("a body");
        let said = answer::collect(&mut body, 1024).await.expect("a body");
        client.give_back(body.into_connected());
        said
    }

    /// Servers close idle connections without notice, and no task polls an idle connection to detect that.
    #[tokio::test]
    async fn a_connection_that_was_closed_while_idle_carries_no_request() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("s");
        let listener = UnixListener::bind(&path).expect("a socket");
        let client = Client::new(ServerAddress::Socket(path, vec![rustix::process::getuid().as_raw()]));
        for requests in [1, 3] {
            let server = std::thread::spawn({
                let listener = listener.try_clone().expect("a socket");
                move || serve(&listener, requests)
            });
            for _ in 0..requests {
                assert_eq!(ask(&client).await, "ok");
            }
            // After this, the connection is closed.
            assert_eq!(server.join().expect("a server"), requests);
        }
    }

    #[tokio::test]
    async fn connections_that_are_closed_leave_nothing_open() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("s");
        let listener = UnixListener::bind(&path).expect("a socket");
        let client = Client::new(ServerAddress::Socket(path, vec![rustix::process::getuid().as_raw()]));
        let server = std::thread::spawn(move || serve(&listener, 2));
        assert_eq!(ask(&client).await, "ok");
        client.close();
        assert_eq!(server.join().expect("a server"), 1);
    }
}
