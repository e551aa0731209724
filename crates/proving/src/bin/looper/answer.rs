//! A service that answers until a signal ends it, while it holds messages that it has not started. It prints a line for
//! each message that it starts; with a pool, for each message that it has answered, and at which delivery.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use snakepit::Snakepit;
use snakepit::lifecycle::ShutdownCoordinator;
use snakepit::loops::{HandlerFailure, LoopGroup, MainLoop, PoolLoop, PoolLoopOptions, RunOptions, Runnable};
use snakepit::mailbox::{Mailbox, SqliteMailbox, TypedMessage};
use snakepit::telemetry::{Event, observe};
use snakepit_proving::mailbox_faults::traced_mailbox::tell;

/// The time that a message takes. Meanwhile other messages wait in the service.
const TAKES: Duration = Duration::from_millis(2);
/// The calls of a pool loop. All but one of them wait in the pool's queue.
const CALLS: usize = 64;

pub(super) async fn run(file: &str, worker: Option<&str>) -> ExitCode {
    let mailbox = SqliteMailbox::open_named(file, "requests").unwrap_or_else(|error| panic!("{error}"));
    let mailbox: Arc<dyn Mailbox> = Arc::new(mailbox);
    // The signal may come before the workers are ready.
    ShutdownCoordinator::install().expect("signals can be answered");
    let (answers, pit): (Arc<dyn Runnable>, _) = match worker {
        None => (Arc::new(by_handler(mailbox)), None),
        Some(worker) => {
            let (answers, pit) = by_pool(mailbox, worker).await;
            (Arc::new(answers), Some(pit))
        }
    };
    tell("serving");
    let group = LoopGroup::new("service").with(answers);
    let end = group.run(RunOptions::new()).await.unwrap_or_else(|error| panic!("{error}"));
    if let Some(pit) = pit {
        pit.stop().await;
    }
    ExitCode::from(end.status)
}

fn by_handler(mailbox: Arc<dyn Mailbox>) -> MainLoop {
    let main = MainLoop::new("main", mailbox, |request: TypedMessage<u64>| async move {
        tell("begun");
        tokio::time::sleep(TAKES).await;
        Ok::<_, HandlerFailure>(request.value)
    });
    main.concurrency(2).prefetch(8)
}

async fn by_pool(mailbox: Arc<dyn Mailbox>, worker: &str) -> (PoolLoop, Snakepit) {
    observe(|event| {
        if let Event::LoopAttemptDone { delivery, .. } = event {
            tell(&format!("answered at delivery {delivery}"));
        }
    });
    let pool = snakepit::python(worker).workers(1);
    let pit = Snakepit::builder().pool(pool).start().await.unwrap_or_else(|error| panic!("{error}"));
    let options = PoolLoopOptions::new("take_a_moment").concurrency(CALLS);
    (PoolLoop::new(&pit, mailbox, &options).expect("a pool"), pit)
}
