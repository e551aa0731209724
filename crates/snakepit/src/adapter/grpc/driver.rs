//! One task for all that a connection does.
//!
//! The connection, its streams and the RPCs of its worker wake each other several times for each call. In one task that costs
//! next to nothing; in tasks of their own, each of these steps may wake another thread, which takes longer than the call.

use std::pin::pin;

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, BoxFuture, abortable};
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;
use tokio::sync::mpsc;

type Work = BoxFuture<'static, ()>;

/// Gives work to the task. It ends when nobody is left who could, and all work is done.
#[derive(Clone, Debug)]
pub(super) struct Driver(mpsc::UnboundedSender<Work>);

impl Driver {
    pub(super) fn start() -> Self {
        let (driver, work) = mpsc::unbounded_channel();
        tokio::spawn(drive(work));
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

async fn drive(work: mpsc::UnboundedReceiver<Work>) {
    let mut work = pin!(work);
    let mut under_way = FuturesUnordered::new();
    let mut open = true;
    while open || !under_way.is_empty() {
        tokio::select! {
            biased;
            more = work.recv(), if open => match more {
                Some(more) => under_way.push(more),
                None => open = false,
            },
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
        }
    }
}
