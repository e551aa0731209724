//! A connection's socket, shared by the task that uses it and the task that closes it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A socket. Clones share it, and it is closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct BodyStream {
    socket: Socket,
    is_hung_up: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
enum Socket {
    Tcp(Arc<TcpStream>),
    Unix(Arc<UnixStream>),
}

impl From<TcpStream> for BodyStream {
    fn from(stream: TcpStream) -> Self {
        Self { socket: Socket::Tcp(Arc::new(stream)), is_hung_up: Arc::default() }
    }
}

impl From<UnixStream> for BodyStream {
    fn from(stream: UnixStream) -> Self {
        Self { socket: Socket::Unix(Arc::new(stream)), is_hung_up: Arc::default() }
    }
}

/// Does the same for both kinds of socket.
macro_rules! both {
    ($stream:expr, $socket:ident => $do:expr) => {
        match &$stream.socket {
            Socket::Tcp($socket) => $do,
            Socket::Unix($socket) => $do,
        }
    };
}

impl BodyStream {
    /// Shuts down the sending side. A server that is not busy then closes its side, because nobody waits for its
    /// response.
    pub(super) fn hang_up(&self) {
        self.is_hung_up.store(true, Ordering::Relaxed);
        let _ = both!(self, socket => rustix::net::shutdown(&**socket, Shutdown::Write));
    }

    /// Reports whether the sending side was shut down.
    pub(super) fn is_hung_up(&self) -> bool {
        self.is_hung_up.load(Ordering::Relaxed)
    }

    /// Waits until the other side has closed the connection.
    pub(super) async fn closed(&self) {
        let mut scrap = [0; 4096];
        loop {
            if both!(self, socket => socket.readable().await).is_err() {
                return;
            }
            match both!(self, socket => socket.try_read(&mut scrap)) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
            }
        }
    }
}

impl AsyncRead for BodyStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(both!(self, socket => socket.poll_read_ready(context)))?;
            match both!(self, socket => socket.try_read(buffer.initialize_unfilled())) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|count| buffer.advance(count))),
            }
        }
    }
}

impl AsyncWrite for BodyStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(both!(self, socket => socket.poll_write_ready(context)))?;
            match both!(self, socket => socket.try_write_vectored(pieces)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
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
