//! What a connection has to send, until the turn of its driver is over.
//!
//! HTTP/2 in Rust writes the headers of a request as soon as they are there, and its body a moment later. A server that
//! reads them wakes up for each, and for grpcio that is a good part of what a call costs. Here both are one write, and so are the
//! requests of many calls that came at the same time.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Holds so many bytes; whoever has more waits until some are sent.
const ROOM: usize = 256 << 10;
/// What it keeps of its memory when all is sent.
const KEPT: usize = 16 << 10;

/// See the module.
#[derive(Default)]
pub(super) struct Outbox(Mutex<State>);

#[derive(Default)]
struct State {
    bytes: BytesMut,
    /// Who waits for room, or for the end of all that is to be sent.
    waiting: Option<Waker>,
    /// Nothing more will come.
    is_closed: bool,
    /// All is sent, and the worker knows that it was all.
    is_over: bool,
    broken: Option<io::ErrorKind>,
}

impl State {
    fn check(&self) -> io::Result<()> {
        self.broken.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn poll_send(
        &mut self,
        mut socket: Pin<&mut impl AsyncWrite>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            match socket.as_mut().poll_write(context, &self.bytes) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(sent)) => self.bytes.advance(sent),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.bytes.capacity() > KEPT {
            self.bytes = BytesMut::new();
        }
        if self.is_closed && !self.is_over {
            std::task::ready!(socket.poll_shutdown(context))?;
            self.is_over = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl Outbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends as much as the socket takes. Ready when there is nothing left to send.
    pub(super) fn poll_send(&self, socket: Pin<&mut impl AsyncWrite>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let sent =
            if state.broken.is_some() { Poll::Ready(Ok(())) } else { state.poll_send(socket, context) };
        if let Poll::Ready(Err(error)) = &sent {
            state.broken = Some(error.kind());
            state.bytes = BytesMut::new();
        }
        if (sent.is_ready() || state.bytes.len() < ROOM)
            && let Some(waiting) = state.waiting.take()
        {
            waiting.wake();
        }
        sent.map(|_| ())
    }
}

/// The socket as HTTP/2 sees it: what it writes goes into the outbox.
pub(super) struct Socket<R> {
    pub(super) reader: R,
    pub(super) outbox: Arc<Outbox>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Socket<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(context, buffer)
    }
}

impl<R: Unpin> AsyncWrite for Socket<R> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.outbox.state();
        state.check()?;
        let taken = bytes.len().min(ROOM.saturating_sub(state.bytes.len()));
        if taken == 0 && !bytes.is_empty() {
            state.waiting = Some(context.waker().clone());
            return Poll::Pending;
        }
        state.bytes.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    /// At once: the driver sends after each of its turns, and this is in one.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.outbox.state().check())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.outbox.state();
        state.is_closed = true;
        state.check()?;
        if state.is_over {
            return Poll::Ready(Ok(()));
        }
        state.waiting = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<R> Drop for Socket<R> {
    fn drop(&mut self) {
        self.outbox.state().is_closed = true;
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex, split};
    use tokio::sync::mpsc;
    use tokio::task::yield_now;

    use super::super::driver::Driver;
    use super::*;

    type Written = mpsc::UnboundedReceiver<Vec<u8>>;

    /// A socket that tells each write.
    struct Told<W>(W, mpsc::UnboundedSender<Vec<u8>>);

    impl<W: AsyncWrite + Unpin> AsyncWrite for Told<W> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let written = std::task::ready!(Pin::new(&mut self.0).poll_write(context, bytes))?;
            let _ = self.1.send(bytes[..written].to_vec());
            Poll::Ready(Ok(written))
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(context)
        }
    }

    /// A driver, the socket for its work, all writes, and the worker's end.
    fn connected(room: usize) -> (Driver, Socket<impl AsyncRead + Unpin>, Written, DuplexStream) {
        let (ours, theirs) = duplex(room);
        let (reader, writer) = split(ours);
        let (tell, written) = mpsc::unbounded_channel();
        let outbox = Arc::new(Outbox::default());
        let driver = Driver::start(Arc::clone(&outbox), Told(writer, tell));
        (driver, Socket { reader, outbox }, written, theirs)
    }

    #[tokio::test]
    async fn what_is_written_in_one_turn_is_sent_by_one_write() {
        let (driver, mut socket, mut written, _theirs) = connected(1 << 20);
        driver.spawn(async move {
            socket.write_all(b"headers, ").await.unwrap();
            socket.flush().await.unwrap();
            // As HTTP/2 does: the next step is woken by the last.
            yield_once().await;
            socket.write_all(b"body").await.unwrap();
            pending::<()>().await;
        });
        assert_eq!(written.recv().await.unwrap(), b"headers, body");
    }

    /// Woken at once, and so not yet at the end of the turn. That of tokio waits for the next one.
    async fn yield_once() {
        let mut yielded = false;
        poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[tokio::test]
    async fn work_that_wakes_itself_without_end_holds_up_neither_the_sending_nor_the_runtime() {
        let (driver, mut socket, mut written, _theirs) = connected(1 << 20);
        driver.spawn(async move {
            socket.write_all(b"first").await.unwrap();
            loop {
                yield_once().await;
            }
        });
        assert_eq!(written.recv().await.unwrap(), b"first");
        for _ in 0..100 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn more_than_there_is_room_for_arrives_in_its_order() {
        let (driver, mut socket, _written, mut theirs) = connected(1000);
        let sent: Vec<u8> = (0..ROOM * 3).map(|index| (index % 251) as u8).collect();
        let copy = sent.clone();
        driver.spawn(async move {
            socket.write_all(&copy).await.unwrap();
            socket.shutdown().await.unwrap();
        });
        let mut received = Vec::new();
        theirs.read_to_end(&mut received).await.unwrap();
        assert!(received == sent);
    }

    #[tokio::test]
    async fn a_socket_that_is_dropped_is_the_end_of_what_the_worker_hears() {
        let (driver, mut socket, _written, mut theirs) = connected(1000);
        driver.spawn(async move { socket.write_all(b"last").await.unwrap() });
        let mut received = Vec::new();
        theirs.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"last");
    }

    #[tokio::test]
    async fn who_writes_to_a_worker_that_is_gone_hears_of_it() {
        let (driver, mut socket, _written, theirs) = connected(1000);
        drop(theirs);
        let (tell, mut told) = mpsc::unbounded_channel();
        driver.spawn(async move {
            let broken = loop {
                if let Err(error) = socket.write_all(&vec![0; ROOM]).await {
                    break error;
                }
            };
            let _ = tell.send(broken.kind());
        });
        assert_eq!(told.recv().await, Some(io::ErrorKind::BrokenPipe));
    }
}
