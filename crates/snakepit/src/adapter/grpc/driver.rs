//! One task for all that a connection does.
//!
//! The connection, its streams and the RPCs of its worker wake each other several times for each call. In one task that costs
//! next to nothing; in tasks of their own, each of these steps may wake another thread, which takes longer than the call. And
//! only here it is known when all of them have done what they could, and what they wrote is to be sent: see [`super::outbox`].

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, BoxFuture, abortable};
use futures_util::stream::FuturesUnordered;
use futures_util::task::AtomicWaker;
use hyper::rt::Executor;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;

use super::outbox::Outbox;

type Work = BoxFuture<'static, ()>;

/// After so many rounds of waking each other, the others of the runtime have their turn. It also ends what wakes itself until
/// then, as all that tokio has does when its budget is used up.
const MOST_ROUNDS: usize = 16;

/// Gives work to the task. It ends when nobody is left who could, and all work is done.
#[derive(Clone, Debug)]
pub(super) struct Driver(mpsc::UnboundedSender<Work>);

impl Driver {
    /// Starts the task, which sends what the work leaves in the outbox.
    pub(super) fn start(outbox: Arc<Outbox>, socket: impl AsyncWrite + Send + 'static) -> Self {
        // Bounded by the calls that the worker holds: each has one RPC. All that waits is taken in the next turn.
        let (driver, work) = mpsc::unbounded_channel();
        tokio::spawn(crate::logging::quietly(drive(work, outbox, socket)));
        Self(driver)
    }

    /// Does it beside the others. Not bound to the caller's runtime, which may end before.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        // The task is gone only with its runtime.
        let _ = self.0.send(Box::pin(work));
    }

    /// As [`Driver::spawn`], for what may be given up.
    pub(super) fn spawn_abortable(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let (work, handle) = abortable(work);
        self.spawn(async move {
            let _ = work.await;
        });
        handle
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Driver {
    fn execute(&self, future: F) {
        self.spawn(future);
    }
}

async fn drive(mut work: mpsc::UnboundedReceiver<Work>, outbox: Arc<Outbox>, socket: impl AsyncWrite) {
    let mut socket = pin!(socket);
    let mut under_way = FuturesUnordered::new();
    let mut open = true;
    let turn = Arc::new(Turn::default());
    let waker = Waker::from(Arc::clone(&turn));
    poll_fn(|outer| {
        let context = &mut Context::from_waker(&waker);
        turn.begin(outer.waker());
        for _ in 0..MOST_ROUNDS {
            while open && let Poll::Ready(more) = work.poll_recv(context) {
                match more {
                    Some(more) => under_way.push(more),
                    None => open = false,
                }
            }
            while let Poll::Ready(Some(())) = under_way.poll_next_unpin(context) {}
            if !turn.has_more() {
                break;
            }
        }
        let is_sent = outbox.poll_send(socket.as_mut(), context).is_ready();
        turn.end();
        if is_sent && !open && under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Who wakes whom: during a turn, those who are woken have another round; between turns, the task is.
#[derive(Default)]
struct Turn {
    state: AtomicU8,
    task: AtomicWaker,
}

const UNDER_WAY: u8 = 1;
const WOKEN: u8 = 2;

impl Turn {
    fn begin(&self, task: &Waker) {
        self.task.register(task);
        self.state.store(UNDER_WAY, Ordering::Release);
    }

    /// Whether somebody was woken since the last look.
    fn has_more(&self) -> bool {
        self.state.fetch_and(!WOKEN, Ordering::AcqRel) & WOKEN != 0
    }

    fn end(&self) {
        if self.state.swap(0, Ordering::AcqRel) & WOKEN != 0 {
            self.task.wake();
        }
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) & UNDER_WAY == 0 {
            self.task.wake();
        }
    }
}
