//! A connection's socket, shared by who speaks over it and who hangs up.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// One socket, however often it is cloned. It is closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) enum Stream {
    Tcp(Arc<TcpStream>),
    Unix(Arc<UnixStream>),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(Arc::new(stream))
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(Arc::new(stream))
    }
}

/// The same of both kinds.
macro_rules! both {
    ($stream:expr, $socket:ident => $do:expr) => {
        match $stream {
            Stream::Tcp($socket) => $do,
            Stream::Unix($socket) => $do,
        }
    };
}

impl Stream {
    /// Says that nothing follows. A server that is not busy closes its side, too: nobody waits for an answer.
    pub(super) fn hang_up(&self) {
        let _ = both!(self, socket => rustix::net::shutdown(&**socket, Shutdown::Write));
    }

    /// Until the other side has closed the connection.
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

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(both!(&*self, socket => socket.poll_read_ready(context)))?;
            match both!(&*self, socket => socket.try_read(buffer.initialize_unfilled())) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|count| buffer.advance(count))),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(both!(&*self, socket => socket.poll_write_ready(context)))?;
            match both!(&*self, socket => socket.try_write_vectored(pieces)) {
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
