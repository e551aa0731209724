//! A service that a signal ends. It prints its phase, and lines on its input move it to the next phase: `go` starts it,
//! `let` lets a handler finish, and `leave` ends the process.

use std::io::BufRead;
use std::process::ExitCode;
use std::sync::Arc;

use snakepit::lifecycle::{ShutdownCoordinator, Stage};
use snakepit::loops::{HandlerFailure, LoopGroup, MainLoop, RunOptions, Runnable};
use snakepit::mailbox::{Mailbox, SqliteMailbox, TypedMessage};
use snakepit_proving::mailbox_faults::traced_mailbox::tell;
use tokio::sync::Semaphore;

/// The steps that the test has allowed.
#[derive(Debug)]
struct StepPermits {
    go: Semaphore,
    through: Semaphore,
    leave: Semaphore,
}

impl StepPermits {
    fn listen() -> Arc<Self> {
        let none = || Semaphore::new(0);
        let allowed = Arc::new(Self { go: none(), through: none(), leave: none() });
        let hears = Arc::clone(&allowed);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                match line.as_str() {
                    "go" => hears.go.add_permits(1),
                    "let" => hears.through.add_permits(1),
                    "leave" => hears.leave.add_permits(1),
                    other => panic!("serve: what is {other}?"),
                }
            }
        });
        allowed
    }
}

async fn pass(gate: &Semaphore) {
    gate.acquire().await.expect("the semaphore is never closed").forget();
}

/// Contends without a runtime. Signals are delivered to the main thread, which holds these locks while a handler runs.
pub(super) fn contend() -> ExitCode {
    let coordinator = ShutdownCoordinator::install().expect("signals can be answered");
    tell("starting");
    while coordinator.stage() == Stage::Running {
        let id = coordinator.register("nobody", || {});
        coordinator.unregister(id);
    }
    ExitCode::SUCCESS
}

async fn tell_stages() {
    let coordinator = ShutdownCoordinator::get().expect("installed");
    coordinator.reached(Stage::Draining { signal: None }).await;
    tell("draining");
    coordinator.reached(Stage::StopNow { signal: 0 }).await;
    tell("stopping now");
}

pub(super) async fn run(file: &str) -> ExitCode {
    let allowed = StepPermits::listen();
    ShutdownCoordinator::install().expect("signals can be answered");
    tokio::spawn(tell_stages());
    tell("starting");
    pass(&allowed.go).await;
    let mailbox: Arc<dyn Mailbox> =
        Arc::new(SqliteMailbox::open(file).unwrap_or_else(|error| panic!("{error}")));
    let gate = Arc::clone(&allowed);
    let main = MainLoop::new("main", mailbox, move |request: TypedMessage<String>| {
        let gate = Arc::clone(&gate);
        async move {
            tell("handling");
            if request.value == "block" {
                // A handler that cannot be cancelled and blocks its thread.
                loop {
                    std::thread::park();
                }
            }
            pass(&gate.through).await;
            Ok::<_, HandlerFailure>(())
        }
    });
    let control = main.control().clone();
    tokio::spawn(async move {
        control.until_running().await;
        tell("receiving");
    });
    let group = LoopGroup::new("service").with(Arc::new(main));
    let end = group.run(RunOptions::new()).await.unwrap_or_else(|error| panic!("{error}"));
    tell(&format!("stopped {}", end.status));
    pass(&allowed.leave).await;
    ExitCode::from(end.status)
}
