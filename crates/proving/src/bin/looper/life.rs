//! One run of a host with a loop over a mailbox in a file. Many such runs, one after another, share the file.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use snakepit::Snakepit;
use snakepit::loops::{HandlerFailure, LoopScope, MainLoop, PoolLoop, PoolLoopOptions, RunOptions, Runnable};
use snakepit::mailbox::sqlite::SqliteOptions;
use snakepit::mailbox::{Backoff, DeadLetterPolicy, Mailbox, SendOptions, TypedMessage};
use snakepit_proving::mailbox_faults::TracedMailbox;
use snakepit_proving::mailbox_faults::traced_mailbox::tell;
use snakepit_proving::random::SeededRandom;
use tokio::time::{Instant, sleep, timeout};

use super::at_once;

/// Short, so that messages that a killed process held return soon. Long enough that a busy machine usually extends it
/// in time.
const LEASE: Duration = Duration::from_millis(150);
/// The duration of a life that no fault ends.
const LIFE: Duration = Duration::from_secs(2);
/// The number of messages that a life handles before it is asked to end.
const ENOUGH: usize = 9;
/// The time limit for handling the rest.
const PATIENCE: Duration = Duration::from_mins(1);

/// The messages that one life sends, with or without a request for a reply.
const SENT: [(&str, bool); 9] = [
    ("fine", true),
    ("fine", false),
    ("slow", true),
    ("fail", true),
    ("hopeless", true),
    ("undecodable", false),
    ("fine", true),
    ("panic", false),
    ("fine", false),
];

fn policy() -> DeadLetterPolicy {
    let mut backoff = Backoff::default();
    backoff.first = Duration::from_millis(5);
    backoff.longest = Duration::from_millis(40);
    // The exceptions of a worker are matched by their types.
    DeadLetterPolicy::new().backoff(backoff).include("Hopeless").include("LookupError")
}

fn open(file: &str) -> Arc<dyn Mailbox> {
    let open =
        |queue: &str| SqliteOptions::new().queue(queue).open(file).unwrap_or_else(|error| panic!("{error}"));
    // Replies go to a queue that exists.
    drop(open("replies"));
    Arc::new(TracedMailbox::over(Arc::new(open("requests"))))
}

async fn handle(request: TypedMessage<Map<String, Value>>) -> Result<Value, HandlerFailure> {
    match request.value["kind"].as_str().unwrap_or_default() {
        "fail" => return Err(HandlerFailure::new("Odd", "it failed")),
        "hopeless" => return Err(HandlerFailure::new("Hopeless", "it is hopeless")),
        // Panics without printing to standard error.
        "panic" => std::panic::resume_unwind(Box::new("on purpose")),
        // Takes longer than the lease.
        "slow" => sleep(LEASE * 3 / 2).await,
        "kill" => end(),
        _ => {}
    }
    let receipt = request.message.receipt.as_ref().map(ToString::to_string);
    tell(&json!({ "handled": receipt }).to_string());
    Ok(request.value["number"].clone())
}

/// Kills this process, as the kernel does if a handler needs more memory than there is.
fn end() {
    // SAFETY: sends a signal to this process, which has nothing to lose.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// A loop, and what must live as long as the loop.
struct LoopHost {
    scope: LoopScope<dyn Runnable>,
    pit: Option<Snakepit>,
}

impl LoopHost {
    async fn start(mailbox: &Arc<dyn Mailbox>, worker: Option<&str>, concurrency: usize) -> Self {
        let mailbox = Arc::clone(mailbox);
        let (runnable, pit): (Arc<dyn Runnable>, _) = match worker {
            None => {
                let main = MainLoop::new("main", mailbox, handle).concurrency(concurrency).prefetch(3);
                (Arc::new(main.policy(policy())), None)
            }
            Some(worker) => {
                let pool = snakepit::python(worker).workers(1).restarts(at_once());
                let pit =
                    Snakepit::builder().pool(pool).start().await.unwrap_or_else(|error| panic!("{error}"));
                let options = PoolLoopOptions::new("answer").concurrency(concurrency).prefetch(3);
                let pool = PoolLoop::new(&pit, mailbox, &options).expect("a pool").policy(policy());
                (Arc::new(pool), Some(pit))
            }
        };
        let options = RunOptions::new().visibility_timeout(LEASE).wait(Duration::from_millis(100));
        Self { scope: LoopScope::start(runnable, options), pit }
    }

    async fn end(self) {
        assert!(self.scope.end(PATIENCE).await, "the loop has not ended");
        if let Some(pit) = self.pit {
            pit.stop().await;
        }
    }
}

/// Sends messages, and handles messages until the loop has handled enough.
pub(super) async fn work(file: &str, seed: u64, worker: Option<&str>) {
    let mailbox = open(file);
    for (at, (kind, asks)) in (0..).zip(SENT) {
        let number = seed * 100 + at;
        let options = if asks { SendOptions::new().reply_to("replies") } else { SendOptions::new() };
        let body = match kind {
            "undecodable" => format!("no JSON, number {number}"),
            kind => json!({ "kind": kind, "number": number }).to_string(),
        };
        mailbox.send(body.into_bytes(), options).await.expect("sent");
    }
    let host = LoopHost::start(&mailbox, worker, 2).await;
    let control = host.scope.runnable().control().clone();
    let mut random = SeededRandom::new(seed);
    let enough = ENOUGH / 2 + random.below(ENOUGH as u64) as usize;
    // There is no event for this number, so it is polled.
    let handled = async {
        while (control.handled() as usize) < enough {
            sleep(Duration::from_millis(1)).await;
        }
    };
    // There may be fewer messages than that.
    let _ = timeout(LIFE, handled).await;
    if random.below(2) == 0 {
        host.scope.runnable().stop_now();
        control.until_stopped().await;
        return;
    }
    host.end().await;
}

/// Handles messages until none are left.
pub(super) async fn rest(file: &str, worker: Option<&str>) {
    let mailbox = open(file);
    let host = LoopHost::start(&mailbox, worker, 10).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let count = mailbox.count().await.expect("a count");
        if count.visible + count.in_flight + count.delayed == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "it does not get empty: {count:?}");
        sleep(Duration::from_millis(5)).await;
    }
    host.end().await;
}
