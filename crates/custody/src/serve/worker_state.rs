//! The state that the handles of a worker and the keeper's thread share, and the futures that wait for changes.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::{Pgid, Pid, WorkerId};

use super::exit::Exit;

/// A worker as its handles, its waiters and the keeper's thread see it.
#[derive(Debug)]
pub(crate) struct WorkerState {
    pub(crate) key: u64,
    pub(crate) id: WorkerId,
    pub(crate) pid: Pid,
    pub(crate) pgid: Pgid,
    pub(crate) shim: Pid,
    pub(crate) pidfd: OwnedFd,
    end: Mutex<ExitState>,
    ended: Condvar,
    pub(super) halt: Mutex<HaltState>,
    /// Whether TERM was sent. To many programs, a second TERM means that they should give up an orderly end.
    asked: AtomicBool,
}

/// Whether a signal such as that of Ctrl-Z has stopped the worker, and the tasks that wait for a change.
#[derive(Debug, Default)]
pub(super) struct HaltState {
    pub(super) signal: Option<i32>,
    wakers: Vec<Waker>,
}

#[derive(Debug)]
enum ExitState {
    Alive(Vec<Waker>),
    Ended(Exit),
}

impl WorkerState {
    pub(crate) fn new(key: u64, id: WorkerId, pid: Pid, pgid: Pgid, shim: Pid, pidfd: OwnedFd) -> Self {
        let end = Mutex::new(ExitState::Alive(Vec::new()));
        let (ended, halt, asked) = (Condvar::new(), Mutex::default(), AtomicBool::new(false));
        Self { key, id, pid, pgid, shim, pidfd, end, ended, halt, asked }
    }

    /// Marks the worker as asked to end. Returns whether it was already marked.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.swap(true, Ordering::Relaxed)
    }

    /// Records the signal that stopped the worker, or `None` when it continues.
    pub(crate) fn set_halt(&self, signal: Option<i32>) {
        let mut halt = self.halt.lock().unwrap_or_else(PoisonError::into_inner);
        halt.signal = signal;
        let wakers = std::mem::take(&mut halt.wakers);
        drop(halt);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn exit(&self) -> Option<Exit> {
        match &*self.end.lock().unwrap_or_else(PoisonError::into_inner) {
            ExitState::Alive(_) => None,
            ExitState::Ended(exit) => Some(*exit),
        }
    }

    pub(crate) fn set_exit(&self, exit: Exit) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if let ExitState::Alive(wakers) = std::mem::replace(&mut *end, ExitState::Ended(exit)) {
            drop(end);
            self.ended.notify_all();
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn wait_until(&self, deadline: Option<Instant>) -> Option<Exit> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let ExitState::Ended(exit) = &*end {
                return Some(*exit);
            }
            end = match deadline {
                None => self.ended.wait(end).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.checked_duration_since(Instant::now())?;
                    self.ended.wait_timeout(end, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

pub(super) struct HaltChanged {
    pub(super) worker: Arc<WorkerState>,
    pub(super) known: Option<i32>,
}

impl Future for HaltChanged {
    type Output = Option<i32>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<i32>> {
        let mut halt = self.worker.halt.lock().unwrap_or_else(PoisonError::into_inner);
        if halt.signal != self.known {
            return Poll::Ready(halt.signal);
        }
        if !halt.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            halt.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

pub(super) struct Exited(pub(super) Arc<WorkerState>);

impl Future for Exited {
    type Output = Exit;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Exit> {
        match &mut *self.0.end.lock().unwrap_or_else(PoisonError::into_inner) {
            ExitState::Ended(exit) => Poll::Ready(*exit),
            ExitState::Alive(wakers) => {
                if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}
