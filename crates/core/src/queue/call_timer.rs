//! When a caller looks at its deadline.
//!
//! Most calls end within milliseconds and have seconds of time. A runtime timer for each of them would take a lock that
//! all threads share, twice. So a call is only listed here, under a lock of its thread. A call that is still listed
//! after a while is marked late, and its caller then sets a timer of the runtime. The caller of a call with little time
//! sets it at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use slab::Slab;
use tokio::time::{Instant, MissedTickBehavior, Sleep};

use super::PoolInner;
use crate::call::answer::CallState;
use crate::sharded::{ShardRef, Sharded};

/// A call with less time sets a timer at once.
const NEAR: Duration = Duration::from_millis(200);
/// The length of a turn: how often the watcher checks the listed calls.
const TURN: Duration = Duration::from_millis(50);
/// A call is marked late in the second turn after the one in which it was listed.
const LATE: u32 = 2;
/// After this many turns without a listed call, the watcher stops until a call is listed again.
const QUIET: u32 = 20;

/// The calls of a pool that have no timer yet.
#[derive(Debug, Default)]
pub(crate) struct ListedCalls {
    calls: Sharded<Mutex<Slab<ListedCall>>>,
    turn: AtomicU32,
    is_watched: AtomicBool,
}

#[derive(Debug)]
struct ListedCall {
    state: Arc<CallState>,
    /// The turn in which the call was listed.
    since: u32,
}

/// A place in the list. Dropping it takes the call off the list.
struct Listing {
    pool: ShardRef<PoolInner>,
    shard: usize,
    key: usize,
}

impl ListedCalls {
    fn lock(calls: &Mutex<Slab<ListedCall>>) -> MutexGuard<'_, Slab<ListedCall>> {
        calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.calls.iter().all(|calls| Self::lock(calls).is_empty())
    }

    /// Marks the calls that have been listed for `turns` turns as late.
    fn tell_late(&self, turns: u32) {
        let now = self.turn.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        for calls in self.calls.iter() {
            let is_late = |call: &&ListedCall| now.wrapping_sub(call.since) >= turns && !call.state.is_late();
            let listed = Self::lock(calls);
            let late: Vec<_> = listed
                .iter()
                .map(|(_, call)| call)
                .filter(is_late)
                .map(|call| Arc::clone(&call.state))
                .collect();
            drop(listed);
            for state in late {
                state.tell_late();
            }
        }
    }
}

impl Listing {
    fn new(pool: &ShardRef<PoolInner>, state: &Arc<CallState>) -> Self {
        let listed = &pool.listed;
        let (shard, calls) = listed.calls.own();
        let call = ListedCall { state: Arc::clone(state), since: listed.turn.load(Ordering::Relaxed) };
        let key = ListedCalls::lock(calls).insert(call);
        if !listed.is_watched.load(Ordering::SeqCst) && !listed.is_watched.swap(true, Ordering::SeqCst) {
            pool.runtime.spawn(watch(Watcher(Arc::downgrade(pool))));
        }
        Self { pool: pool.clone(), shard, key }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let call = ListedCalls::lock(self.pool.listed.calls.get(self.shard)).try_remove(self.key);
        drop(call);
    }
}

async fn watch(watcher: Watcher) {
    let mut quiet = 0;
    let mut turns = tokio::time::interval(TURN);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    turns.tick().await; // the first one comes at once
    loop {
        turns.tick().await;
        let Some(pool) = watcher.0.upgrade() else { return };
        pool.listed.tell_late(LATE);
        quiet = if pool.listed.is_empty() { quiet + 1 } else { 0 };
        if quiet == QUIET {
            return;
        }
    }
}

/// Belongs to the task that checks the listed calls of a pool. When the task ends, even because its runtime was
/// dropped, the callers of all listed calls set timers.
struct Watcher(Weak<PoolInner>);

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            pool.listed.is_watched.store(false, Ordering::SeqCst);
            pool.listed.tell_late(0);
        }
    }
}

/// The timer of one call.
pub(crate) struct CallTimer {
    until: Instant,
    state: TimerState,
}

enum TimerState {
    Off,
    /// The listing ends when it is dropped.
    Listed {
        _listing: Listing,
    },
    Set(Pin<Box<Sleep>>),
}

impl CallTimer {
    pub(crate) fn new(until: Instant) -> Self {
        Self { until, state: TimerState::Off }
    }

    /// Sets another time.
    pub(crate) fn reset(&mut self, until: Instant) {
        self.until = until;
        match &mut self.state {
            TimerState::Set(sleep) => sleep.as_mut().reset(until),
            TimerState::Off | TimerState::Listed { .. } => self.state = TimerState::Off,
        }
    }

    /// Polls until the time has come. `since` is when the call began to wait.
    pub(crate) fn poll(
        &mut self,
        pool: &ShardRef<PoolInner>,
        state: &Arc<CallState>,
        since: Instant,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            match &mut self.state {
                TimerState::Set(sleep) => return sleep.as_mut().poll(context),
                TimerState::Listed { .. } if !state.is_late() => return Poll::Pending,
                TimerState::Off if !state.is_late() && self.until >= since + NEAR => {
                    self.state = TimerState::Listed { _listing: Listing::new(pool, state) };
                }
                TimerState::Off | TimerState::Listed { .. } => {
                    self.state = TimerState::Set(Box::pin(tokio::time::sleep_until(self.until)));
                }
            }
        }
    }
}
