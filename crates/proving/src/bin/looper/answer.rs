//! A service that answers until a signal ends it, with messages in hand that it has not begun. It says each that it has begun.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use snakepit::loops::{Failure, LoopGroup, MainLoop, RunOptions};
use snakepit::mailbox::{Mailbox, SqliteMailbox, TypedMessage};
use snakepit_proving::mailbox::telling::tell;

/// How long a message takes: others wait in hand meanwhile.
const TAKES: Duration = Duration::from_millis(2);

pub(super) async fn run(file: &str) -> ExitCode {
    let mailbox = SqliteMailbox::open_named(file, "requests").unwrap_or_else(|error| panic!("{error}"));
    let mailbox: Arc<dyn Mailbox> = Arc::new(mailbox);
    let main = MainLoop::new("main", mailbox, |request: TypedMessage<u64>| async move {
        tell("begun");
        tokio::time::sleep(TAKES).await;
        Ok::<_, Failure>(request.value)
    });
    let group = LoopGroup::new("service").with(Arc::new(main.concurrency(2).prefetch(8)));
    let running = group.run(RunOptions::new());
    tell("serving");
    let end = running.await.unwrap_or_else(|error| panic!("{error}"));
    ExitCode::from(end.status)
}
