//! A service that answers until a signal ends it, while it holds messages that it has not started. It prints each
//! message that it starts.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use snakepit::lifecycle::ShutdownCoordinator;
use snakepit::loops::{HandlerFailure, LoopGroup, MainLoop, RunOptions};
use snakepit::mailbox::{Mailbox, SqliteMailbox, TypedMessage};
use snakepit_proving::mailbox_faults::traced_mailbox::tell;

/// The time that a message takes. Meanwhile other messages wait in the service.
const TAKES: Duration = Duration::from_millis(2);

pub(super) async fn run(file: &str) -> ExitCode {
    let mailbox = SqliteMailbox::open_named(file, "requests").unwrap_or_else(|error| panic!("{error}"));
    let mailbox: Arc<dyn Mailbox> = Arc::new(mailbox);
    let main = MainLoop::new("main", mailbox, |request: TypedMessage<u64>| async move {
        tell("begun");
        tokio::time::sleep(TAKES).await;
        Ok::<_, HandlerFailure>(request.value)
    });
    let group = LoopGroup::new("service").with(Arc::new(main.concurrency(2).prefetch(8)));
    // The signal may come as soon as the test has read this line.
    ShutdownCoordinator::install().expect("signals can be answered");
    tell("serving");
    let end = group.run(RunOptions::new()).await.unwrap_or_else(|error| panic!("{error}"));
    ExitCode::from(end.status)
}
