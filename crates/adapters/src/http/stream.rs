//! A connection's socket, shared by the request that uses it and the cancellation that closes it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A socket. Clones share it, and it is closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct BodyStream(Arc<SharedSocket>);

#[derive(Debug)]
struct SharedSocket {
    /// Locked for single reads and writes only. All of them are made by the task of one call.
    socket: Mutex<Socket>,
    is_hung_up: AtomicBool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpStream> for BodyStream {
    fn from(stream: TcpStream) -> Self {
        Self::new(Socket::Tcp(stream))
    }
}

impl From<UnixStream> for BodyStream {
    fn from(stream: UnixStream) -> Self {
        Self::new(Socket::Unix(stream))
    }
}

/// Does the same for both kinds of socket.
macro_rules! both {
    ($stream:expr, $socket:ident => $do:expr) => {
        match &mut *$stream.socket() {
            Socket::Tcp($socket) => $do,
            Socket::Unix($socket) => $do,
        }
    };
}

impl BodyStream {
    fn new(socket: Socket) -> Self {
        Self(Arc::new(SharedSocket { socket: Mutex::new(socket), is_hung_up: AtomicBool::new(false) }))
    }

    fn socket(&self) -> MutexGuard<'_, Socket> {
        self.0.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shuts down the sending side. A server that is not busy then closes its side, because nobody waits for its
    /// response.
    pub(super) fn hang_up(&self) {
        self.0.is_hung_up.store(true, Ordering::Relaxed);
        let _ = both!(self, socket => shutdown(&*socket, Shutdown::Write));
    }

    /// Reports whether the sending side was shut down.
    pub(super) fn is_hung_up(&self) -> bool {
        self.0.is_hung_up.load(Ordering::Relaxed)
    }

    /// Reports whether the other side has sent nothing that was not read, and has not closed the connection.
    pub(super) fn is_quiet(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = both!(self, socket => recv(&*socket, &mut [0; 1][..], flags));
        matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }

    /// Waits until the other side has closed the connection.
    pub(super) async fn closed(&self) {
        let mut scrap = [0; 4096];
        poll_fn(|context| {
            loop {
                let mut buffer = ReadBuf::new(&mut scrap);
                let read = both!(self, socket => Pin::new(socket).poll_read(context, &mut buffer));
                if ready!(read).is_err() || buffer.filled().is_empty() {
                    return Poll::Ready(());
                }
            }
        })
        .await;
    }
}

impl AsyncRead for BodyStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        both!(self, socket => Pin::new(socket).poll_read(context, buffer))
    }
}

impl AsyncWrite for BodyStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        both!(self, socket => Pin::new(socket).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        both!(self, socket => Pin::new(socket).poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.hang_up();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream as BlockingStream;

    use super::*;

    fn pair() -> (BodyStream, BlockingStream) {
        let (ours, theirs) = BlockingStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a socket");
        (UnixStream::from_std(ours).expect("a socket").into(), theirs)
    }

    #[tokio::test]
    async fn a_connection_is_quiet_until_the_other_side_says_something_or_closes_it() {
        let (stream, mut other) = pair();
        assert!(stream.is_quiet());
        other.write_all(b"x").expect("room");
        assert!(!stream.is_quiet());
        let (stream, other) = pair();
        drop(other);
        assert!(!stream.is_quiet());
    }

    #[tokio::test]
    async fn the_end_of_a_connection_is_waited_for_and_what_comes_before_it_is_dropped() {
        let (stream, mut other) = pair();
        stream.hang_up();
        assert!(stream.clone().is_hung_up());
        other.write_all(&[0; 10_000]).expect("room");
        assert!(futures_util::FutureExt::now_or_never(stream.closed()).is_none());
        drop(other);
        stream.closed().await;
    }
}
