//! Messages whose calls wait in the queue of a busy pool were not begun: however a run ends, they are given back, and
//! their delivery does not count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use snakepit::Pool;
use snakepit::loops::{Intake, LoopGroup, LoopScope, PoolLoop, PoolLoopOptions, RunOptions, Runnable};
use snakepit::mailbox::SettingsChange;
use snakepit::pool::CancelGrace;

use crate::mailboxes::{Mailboxes, end, run};
use crate::support::{self, Pit, soon, until, worker};

/// How often each test ends a run. The default limit of deliveries is 5.
const LIVES: usize = 5;
const MESSAGES: usize = 8;
/// A lease that ends soon after its loop.
const SHORT_LEASE: Duration = Duration::from_secs(1);

/// How a run ends.
#[derive(Clone, Copy, Debug)]
enum EndOfRun {
    /// The shutdown takes longer than its caller waits, and the group drops the loop.
    Timeout,
    /// The first order lets the loop finish, the second stops it.
    SecondSignal,
    StopNow,
    /// The future of the run is dropped.
    Drop,
}

/// A pool with one worker, and messages that keep it busy for longer than any test.
struct BusyPool {
    pit: Pit,
    pool: Pool,
    mailboxes: Mailboxes,
}

impl BusyPool {
    async fn start(mailboxes: Mailboxes) -> Self {
        let soon = Duration::from_millis(10);
        let grace = CancelGrace::each(soon);
        let busy = worker("basic.py").workers(1).cancel_grace(grace).restarts(support::at_once());
        let pit = Pit::start(busy).await;
        let pool = pit.pools()[0].clone();
        for _ in 0..MESSAGES {
            mailboxes.send(json!([600])).await;
        }
        Self { pit, pool, mailboxes }
    }

    fn pool_loop(&self) -> PoolLoop {
        let options = PoolLoopOptions::new("sleep").concurrency(MESSAGES).visibility_timeout(SHORT_LEASE);
        PoolLoop::new(&self.pit, Arc::clone(&self.mailboxes.requests), &options).expect("a pool")
    }

    /// Waits until the worker has one call and all others wait for it.
    async fn until_busy(&self) {
        until("the worker is busy", || self.pool.in_flight() == 1 && self.pool.queued() == MESSAGES - 1)
            .await;
    }

    /// Waits until all messages are back and the worker is free.
    async fn until_all_are_back(&self) {
        self.mailboxes.until_count(MESSAGES as u64, 0, 0).await;
        until("the worker is free", || self.pool.in_flight() == 0 && self.pool.queued() == 0).await;
    }

    async fn life(&self, how: EndOfRun) {
        let pool_loop = Arc::new(self.pool_loop());
        match how {
            EndOfRun::Timeout => {
                let group = LoopGroup::new("group")
                    .with(Arc::clone(&pool_loop) as Arc<dyn Runnable>)
                    .shutdown_timeout(Duration::from_millis(100));
                let mut scope = LoopScope::start(Arc::new(group), RunOptions::new());
                self.until_busy().await;
                let in_time = scope.runnable().shutdown(Duration::from_millis(100)).await;
                assert!(!in_time, "the call takes longer");
                soon("the group drops its loop", scope.ended()).await.expect("it has no error");
            }
            EndOfRun::SecondSignal | EndOfRun::StopNow => {
                let scope = LoopScope::start(Arc::clone(&pool_loop), RunOptions::new());
                self.until_busy().await;
                if matches!(how, EndOfRun::SecondSignal) {
                    drop(pool_loop.shutdown(Duration::from_mins(1)));
                }
                pool_loop.stop_now();
                soon("it ends", pool_loop.control().until_stopped()).await;
                drop(scope);
            }
            EndOfRun::Drop => {
                let runs = Arc::clone(&pool_loop);
                let run = tokio::spawn(async move { runs.run(RunOptions::new()).await });
                self.until_busy().await;
                run.abort();
            }
        }
        self.until_all_are_back().await;
        // The handlers of a run that is dropped cannot say what they have done.
        let limit = if matches!(how, EndOfRun::Drop) { MESSAGES } else { 1 };
        assert!(pool_loop.control().handled() <= limit as u64, "{how:?}: no handler has begun the others");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn however_a_run_ends_only_the_message_that_a_worker_had_begun_has_been_attempted() {
    for how in [EndOfRun::Timeout, EndOfRun::SecondSignal, EndOfRun::StopNow, EndOfRun::Drop] {
        for mailboxes in Mailboxes::both() {
            let busy = BusyPool::start(mailboxes).await;
            let (kind, requests) = (busy.mailboxes.kind, &busy.mailboxes.requests);
            // The worker may begin the same message each time.
            let limit = SettingsChange::new().max_deliveries(2 * LIVES as u32);
            requests.configure(limit).await.expect("configured");
            for _ in 0..LIVES {
                busy.life(how).await;
            }
            let all = busy.mailboxes.take_all().await;
            assert_eq!(all.len(), MESSAGES, "{kind}, {how:?}: nothing is buried");
            let counted: u32 = all.iter().map(|message| message.delivery_count - 1).sum();
            assert_eq!(counted, LIVES as u32, "{kind}, {how:?}: one worker begins one message in each life");
            busy.pit.end_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_completes_the_call_that_a_worker_has_and_gives_the_queued_ones_back_at_once() {
    for mailboxes in Mailboxes::both() {
        let pit = Pit::start(worker("basic.py").workers(1)).await;
        let pool = pit.pools()[0].clone();
        for _ in 0..MESSAGES {
            mailboxes.send(json!([1.0])).await;
        }
        let options = PoolLoopOptions::new("sleep").concurrency(MESSAGES);
        let sleeps = PoolLoop::new(&pit, Arc::clone(&mailboxes.requests), &options).expect("a pool");
        let scope = run(sleeps, RunOptions::new()).await;
        until("all have called", || pool.in_flight() == 1 && pool.queued() > MESSAGES / 2).await;
        let began = Instant::now();
        end(scope).await;
        assert!(began.elapsed() < Duration::from_secs(4), "{}: {:?}", mailboxes.kind, began.elapsed());
        let completed = pool.outcomes().ok;
        assert!((1..MESSAGES as u64 / 2).contains(&completed), "{}: {completed}", mailboxes.kind);
        let left = mailboxes.take_all().await;
        assert_eq!(left.len() as u64 + completed, MESSAGES as u64, "{}", mailboxes.kind);
        assert!(left.iter().all(|message| message.delivery_count == 1), "{}: {left:?}", mailboxes.kind);
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_gives_back_what_waits_in_the_queue_and_what_comes_after_it_is_handled() {
    let busy = BusyPool::start(Mailboxes::memory()).await;
    let scope = run(busy.pool_loop(), RunOptions::new()).await;
    busy.until_busy().await;
    scope.runnable().set_intake(Intake::Paused);
    busy.mailboxes.until_count(MESSAGES as u64 - 1, 1, 0).await;
    scope.runnable().set_intake(Intake::Open);
    busy.until_busy().await;
    scope.runnable().stop_now();
    soon("it ends", scope.runnable().control().until_stopped()).await;
    busy.until_all_are_back().await;
    busy.pit.end_now().await;
}
