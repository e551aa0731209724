//! Connections to one worker: one per request under way. A connection is reused while the worker keeps it open.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, sockopt};
use tokio::net::UnixStream;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::stream::BodyStream;
use crate::listener::{Listener, refusal};

/// Servers close connections that idle, most of them after five seconds or more. One that is closed at the moment of a
/// request leaves it unknown whether that was heard, so no connection is used that has idled for long.
const IDLE: Duration = Duration::from_secs(2);

/// How long a thread waits until a worker takes its connection, before it looks whether somebody still wants that.
const IN_LINE: Duration = Duration::from_millis(200);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum SendError {
    /// Nobody listens where the worker said.
    Unreachable(io::Error),
    /// There is no connection to be had, which is not the worker's fault: no descriptor, or no port of our own.
    NoConnection(io::Error),
    /// The connection broke before anything of the request was on its way.
    Unsent(hyper::Error),
    /// The connection broke; the worker may have begun.
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

/// A connection that is in use. Dropped, it is closed, and the worker sees that nobody waits any more.
pub(super) struct Connected {
    sender: SendRequest<Full<Bytes>>,
    stream: BodyStream,
    _task: AbortOnDrop,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where the worker listens.
pub(super) enum ServerAddress {
    /// A Unix socket, and the users who may listen there for it.
    Socket(PathBuf, Vec<u32>),
    Port(Arc<Listener>),
}

/// See the module.
pub(super) struct Client {
    place: ServerAddress,
    idle: Mutex<Vec<(Instant, Connected)>>,
}

impl Client {
    pub(super) fn new(place: ServerAddress) -> Self {
        Self { place, idle: Mutex::default() }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Instant, Connected)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and says by what it travels. The connection is to be given back when the answer is read.
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
            if let Err(error) = connected.sender.ready().await {
                if is_fresh {
                    return Err(SendError::Unsent(error));
                }
                continue;
            }
            travels_by(&connected.stream);
            match connected.sender.try_send_request(request).await {
                Ok(response) => return Ok((response, connected)),
                Err(mut error) => match error.take_message() {
                    // Closed by the worker while it idled: nothing of it was sent.
                    Some(unsent) if !is_fresh => request = unsent,
                    Some(_) => return Err(SendError::Unsent(error.into_error())),
                    None => return Err(SendError::Broken(error.into_error())),
                },
            }
        }
    }

    /// The answer was read to its end: the connection may serve another request.
    pub(super) fn give_back(&self, connected: Connected) {
        // A worker may have answered a request that was cancelled: then its connection is shut on our side.
        if !connected.sender.is_closed() && !connected.stream.is_hung_up() {
            self.idle().push((Instant::now(), connected));
        }
    }

    fn take_idle(&self) -> Option<Connected> {
        let mut idle = self.idle();
        idle.retain(|(since, connected)| since.elapsed() < IDLE && !connected.sender.is_closed());
        idle.pop().map(|(_, connected)| connected)
    }

    /// Closes those that nobody uses.
    pub(super) fn close(&self) {
        self.idle().clear();
    }

    /// Whether the worker takes a connection, and closes it when nothing is said: nobody's code runs for that but the server's own.
    /// Takes as long as the worker does.
    pub(super) async fn answers(&self) -> bool {
        let Ok(stream) = self.open().await else { return false };
        stream.hang_up();
        stream.closed().await;
        true
    }

    async fn connect(&self) -> Result<Connected, SendError> {
        greet(self.open().await?).await
    }

    /// A connection on which nothing was sent yet.
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

/// Refuses whoever has put a socket of its own where the worker's should be. Nothing was sent yet.
#[cfg(target_os = "linux")]
fn check_peer(stream: &UnixStream, users: &[u32]) -> io::Result<()> {
    let listens = sockopt::socket_peercred(stream)?.uid.as_raw();
    if users.contains(&listens) {
        return Ok(());
    }
    let message =
        format!("the user with the number {listens} listens there, and not the worker's: nothing was sent");
    Err(refusal(message))
}

#[cfg(not(target_os = "linux"))]
fn check_peer(_: &UnixStream, _: &[u32]) -> io::Result<()> {
    Ok(())
}

/// Where too many wait to be taken already, the kernel lets only those wait who block.
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

/// Apple's systems cannot make it so in one step.
#[cfg(target_vendor = "apple")]
fn socket_of_our_own() -> io::Result<std::os::fd::OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

/// Connects, and blocks for a while if others wait.
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
    // Its errors are those of the requests that it carries.
    let task = tokio::spawn(async move { drop(connection.await) });
    Ok(Connected { sender, stream, _task: AbortOnDrop(task.abort_handle()) })
}
