//! A host that starts and stops an engine and writes nothing itself. Its streams show what the engine writes.
//!
//! `proving-life library|program|guest WORKER STATE_DIR`: `library` uses the defaults, `program` sets `library_mode =
//! false`, and `guest` does the same under the host's own subscriber. `WORKER` is the tests' `loud.py`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use snakepit::custody::CustodyOptions;
use snakepit::pool::CancelGrace;
use snakepit::telemetry::Logging;
use snakepit::{CallError, Snakepit, args};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

type BoxedError = Box<dyn std::error::Error>;

/// Far more time than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

const SHORT: CancelGrace = CancelGrace::each(Duration::from_millis(200)).ask(Duration::from_millis(20));

/// The number of events that the host's own subscriber has received.
static HEARD: AtomicU64 = AtomicU64::new(0);

struct CountingSubscriber;

impl Subscriber for CountingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("snakepit")
    }

    fn event(&self, _: &Event<'_>) {
        HEARD.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn main() -> Result<(), BoxedError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mode, worker, state_dir] = words.as_slice() else { return Err("three words are needed".into()) };
    let logging = match mode.as_str() {
        "library" => Logging::default(),
        "program" => Logging::default().for_program(),
        "guest" => {
            tracing::subscriber::set_global_default(CountingSubscriber)?;
            Logging::default().for_program()
        }
        other => return Err(format!("{other} is not a mode: use library, program or guest").into()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(live(logging, worker, state_dir))?;
    if mode == "guest" && HEARD.load(Ordering::Relaxed) == 0 {
        return Err("the host's subscriber heard nothing".into());
    }
    Ok(())
}

async fn live(logging: Logging, worker: &str, state_dir: &str) -> Result<(), BoxedError> {
    let custody = CustodyOptions::default().state_dir(state_dir);
    let pool = snakepit::python(worker).workers(2).cancel_grace(SHORT);
    let pit = Snakepit::builder().custody(custody).logging(logging).pool(pool).start().await?;
    let said: String = pit.call("say", args! { text: "hello" }).await?;
    ensure(said == "hello", "it said something else")?;
    let lines: u32 = pit.call("shout", args! { lines: 2000 }).await?;
    ensure(lines == 2000, "it shouted something else")?;
    let items: Vec<_> = pit.stream::<u32>("count", args! { n: 5 }).open()?.collect().await;
    ensure(items.len() == 5 && items.iter().all(Result::is_ok), "the stream broke")?;
    let _: String = pit.call("say", args! { text: "in a session" }).session("s").await?;
    ensure(pit.pools()[0].end_session("s"), "there was no session")?;
    // All workers are alive now. A worker that dies meanwhile cannot be replaced.
    recycle(&pit).await?;
    let failed = pit.call::<String>("fail", args! { text: "failing" }).await;
    ensure(matches!(failed, Err(CallError::Remote(_))), "it did not fail")?;
    let late = pit.call::<String>("sleep", args! { text: "late" }).timeout(Duration::from_millis(300)).await;
    ensure(matches!(late, Err(CallError::Timeout { .. })), "it was in time")?;
    let died = pit.call::<String>("die", args! { text: "dying" }).await;
    ensure(matches!(died, Err(CallError::WorkerDied { .. })), "it did not die")?;
    let _: String = pit.call("say", args! { text: "goodbye" }).await?;
    pit.stop().await;
    Ok(())
}

/// Replaces all workers and waits until the old ones are gone.
async fn recycle(pit: &Snakepit) -> Result<(), BoxedError> {
    let pool = &pit.pools()[0];
    let mut events = pool.events();
    let mut left = pool.recycle_all().await;
    ensure(left == 2, "not all are replaced")?;
    let replaced = async {
        while left > 0 {
            match events.next().await {
                Some(snakepit::telemetry::Event::WorkerEnded { .. }) => left -= 1,
                Some(_) => {}
                None => return,
            }
        }
    };
    tokio::time::timeout(PATIENCE, replaced).await?;
    ensure(left == 0, "the old ones did not end")
}

fn ensure(holds: bool, otherwise: &str) -> Result<(), BoxedError> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}
