//! A group in which one loop crashes, in each phase of its life, under each policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::json;
use snakepit::loops::{
    Control, CrashPolicy, GroupEnd, GroupError, LoopError, LoopGroup, MainLoop, RunOptions, Runnable,
};
use snakepit::mailbox::MessageCounts;
use snakepit::telemetry::{Event, Level, subscribe_to};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::mailboxes::{Gate, Mailboxes};
use crate::support::{soon, until};

/// When the loop crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Before it receives.
    Starting,
    /// When the test says so.
    Running,
    /// After it has ended in good order.
    Stopped,
}

/// A loop over a mailbox whose first run crashes.
#[derive(Debug)]
struct Fragile {
    inner: MainLoop,
    phase: Phase,
    crash: Semaphore,
    runs: AtomicUsize,
}

impl Runnable for Fragile {
    fn control(&self) -> &Control {
        self.inner.control()
    }

    fn run(&self, options: RunOptions) -> BoxFuture<'_, Result<(), LoopError>> {
        Box::pin(async move {
            if self.runs.fetch_add(1, Ordering::SeqCst) > 0 {
                return self.inner.run(options).await;
            }
            match self.phase {
                Phase::Starting => {}
                Phase::Stopped => self.inner.run(options).await?,
                Phase::Running => tokio::select! {
                    ended = self.inner.run(options) => return ended,
                    _ = self.crash.acquire() => {}
                },
            }
            // Without a message on standard error.
            std::panic::resume_unwind(Box::new("it crashed"))
        })
    }
}

/// Two loops, one of which crashes. Each has its own mailbox and gate.
struct Pair {
    of_fragile: (Mailboxes, Gate),
    of_other: (Mailboxes, Gate),
    fragile: Arc<Fragile>,
    other: Arc<MainLoop>,
    group: Arc<LoopGroup>,
    task: JoinHandle<Result<GroupEnd, GroupError>>,
}

impl Pair {
    fn start(phase: Phase, policy: CrashPolicy) -> Self {
        let (of_fragile, of_other) = ((Mailboxes::sqlite(), Gate::new()), (Mailboxes::memory(), Gate::new()));
        let inner = of_fragile.1.main_loop("fragile", &of_fragile.0.requests);
        let fragile = Arc::new(Fragile { inner, phase, crash: Semaphore::new(0), runs: AtomicUsize::new(0) });
        let other = Arc::new(of_other.1.main_loop("other", &of_other.0.requests));
        let group = LoopGroup::new("group").with(fragile.clone()).with(other.clone()).crash_policy(policy);
        let group = Arc::new(group);
        let runs = Arc::clone(&group);
        let task = tokio::spawn(async move { runs.run_without_signals(RunOptions::new()).await });
        Self { of_fragile, of_other, fragile, other, group, task }
    }

    /// Waits until each loop has a message in flight.
    async fn both_handle(&mut self) {
        for (mailboxes, gate) in [&mut self.of_fragile, &mut self.of_other] {
            mailboxes.ask(json!("first")).await;
            gate.begun().await;
        }
    }

    fn crash(&self) {
        self.fragile.crash.add_permits(1);
    }

    async fn until_run_again(&self) {
        until("it is run again", || self.fragile.runs.load(Ordering::SeqCst) == 2 && self.fragile.running())
            .await;
    }

    /// Checks that messages to this loop are handled.
    async fn assert_serves(pair: &mut (Mailboxes, Gate)) {
        pair.0.ask(json!("after")).await;
        pair.1.begun().await;
        pair.1.let_through(1);
        assert_eq!(pair.0.reply().await.read::<String>().expect("a text"), "after");
    }

    /// Checks that the other loop has completed what it had, and that the group names the loop that crashed.
    async fn assert_all_stopped(self) {
        self.of_other.1.let_through(1);
        let error = soon("the group ends", self.task).await.expect("no panic").expect_err("it crashed");
        let GroupError::Crashed { name, source } = &error else { panic!("{error:?}") };
        assert_eq!(name, "fragile");
        assert!(source.to_string().contains("it crashed"), "{source}");
        assert_eq!(self.of_other.0.count().await, MessageCounts::default());
        assert!(!self.other.running() && !self.fragile.running());
    }

    async fn end(self) -> GroupEnd {
        drop(self.group.shutdown(Duration::from_secs(20)));
        soon("the group ends", self.task).await.expect("no panic").expect("no error")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_crashes_while_it_starts_stops_all_or_is_run_again_or_is_left() {
    let stopped = Pair::start(Phase::Starting, CrashPolicy::StopAll);
    stopped.assert_all_stopped().await;

    let mut again = Pair::start(Phase::Starting, CrashPolicy::restart());
    again.until_run_again().await;
    Pair::assert_serves(&mut again.of_fragile).await;
    Pair::assert_serves(&mut again.of_other).await;
    assert!(again.end().await.is_clean);

    let mut events = subscribe_to(Level::Warn);
    let mut left = Pair::start(Phase::Starting, CrashPolicy::Ignore);
    // A crash that the group notices while it ends is not clean.
    soon("the crash", async { while !matches!(events.next().await, Some(Event::LoopCrashed { .. })) {} })
        .await;
    Pair::assert_serves(&mut left.of_other).await;
    assert!(!left.fragile.running());
    assert!(left.end().await.is_clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_crashes_while_it_receives_stops_all_or_is_run_again_or_is_left() {
    for policy in [CrashPolicy::StopAll, CrashPolicy::restart(), CrashPolicy::Ignore] {
        let mut pair = Pair::start(Phase::Running, policy);
        soon("it runs", pair.fragile.control().until_running()).await;
        pair.crash();
        match policy {
            CrashPolicy::StopAll => {
                pair.assert_all_stopped().await;
                continue;
            }
            CrashPolicy::Restart(_) => {
                pair.until_run_again().await;
                Pair::assert_serves(&mut pair.of_fragile).await;
            }
            _ => soon("it is gone", pair.fragile.control().until_stopped()).await,
        }
        Pair::assert_serves(&mut pair.of_other).await;
        assert!(pair.end().await.is_clean, "{policy:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_crashes_while_it_handles_gives_its_message_back() {
    for policy in [CrashPolicy::StopAll, CrashPolicy::restart(), CrashPolicy::Ignore] {
        let mut pair = Pair::start(Phase::Running, policy);
        pair.both_handle().await;
        pair.crash();
        match policy {
            CrashPolicy::StopAll => {
                pair.of_fragile.0.until_count(1, 0, 0).await;
                pair.assert_all_stopped().await;
                continue;
            }
            CrashPolicy::Restart(_) => {
                assert_eq!(pair.of_fragile.1.begun().await, "first", "it comes again");
                pair.of_fragile.1.let_through(1);
                assert_eq!(pair.of_fragile.0.reply().await.read::<String>().expect("a text"), "first");
            }
            _ => pair.of_fragile.0.until_count(1, 0, 0).await,
        }
        pair.of_other.1.let_through(1);
        assert_eq!(pair.of_other.0.reply().await.read::<String>().expect("a text"), "first");
        assert!(pair.end().await.is_clean, "{policy:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_crashes_while_it_drains_is_run_again_and_takes_nothing_until_the_drain_is_reversed() {
    let mut pair = Pair::start(Phase::Running, CrashPolicy::restart());
    pair.both_handle().await;
    assert_eq!(pair.group.drain().in_flight, 2);
    pair.crash();
    pair.until_run_again().await;
    pair.of_fragile.0.until_count(1, 0, 0).await;
    pair.of_other.1.let_through(1);
    soon("nothing is left", pair.group.until_empty()).await;
    assert!(!pair.group.is_ready());
    assert_eq!(pair.of_fragile.0.count().await.visible, 1, "it takes nothing");
    pair.group.resume();
    assert_eq!(pair.of_fragile.1.begun().await, "first");
    pair.of_fragile.1.let_through(1);
    assert_eq!(pair.of_fragile.0.reply().await.read::<String>().expect("a text"), "first");
    assert!(pair.end().await.is_clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_crashes_while_it_is_shut_down_is_not_run_again_and_the_end_is_not_clean() {
    for policy in [CrashPolicy::StopAll, CrashPolicy::restart(), CrashPolicy::Ignore] {
        let mut pair = Pair::start(Phase::Running, policy);
        pair.both_handle().await;
        let ends = pair.group.shutdown(Duration::from_secs(20));
        until("all are told", || {
            !pair.fragile.control().wanted().receives() && !pair.other.control().wanted().receives()
        })
        .await;
        pair.crash();
        pair.of_fragile.0.until_count(1, 0, 0).await;
        assert!(pair.other.running(), "the other one completes what it has");
        pair.of_other.1.let_through(1);
        assert_eq!(pair.of_other.0.reply().await.read::<String>().expect("a text"), "first");
        assert_eq!(pair.fragile.runs.load(Ordering::SeqCst), 1);
        if policy == CrashPolicy::StopAll {
            pair.assert_all_stopped().await;
            continue;
        }
        let end = soon("the group ends", pair.task).await.expect("no panic").expect("no error");
        assert_eq!((end.is_clean, end.status), (false, 1), "{policy:?}");
        assert!(!ends.await, "{policy:?}: not all was finished");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_crashes_after_its_end_is_told_of_and_loses_nothing() {
    for policy in [CrashPolicy::StopAll, CrashPolicy::restart(), CrashPolicy::Ignore] {
        let mut pair = Pair::start(Phase::Stopped, policy);
        pair.both_handle().await;
        drop(pair.group.shutdown(Duration::from_secs(20)));
        pair.of_fragile.1.let_through(1);
        assert_eq!(pair.of_fragile.0.reply().await.read::<String>().expect("a text"), "first");
        assert_eq!(pair.of_fragile.0.count().await, MessageCounts::default());
        if policy == CrashPolicy::StopAll {
            pair.assert_all_stopped().await;
            continue;
        }
        pair.of_other.1.let_through(1);
        let end = soon("the group ends", pair.task).await.expect("no panic").expect("no error");
        assert_eq!(end.status, 1, "{policy:?}");
    }
}
