//! Scripts: one alone, several at the same time, and one inside a host that has an engine.

use std::fmt;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use snakepit::custody::Run;
use snakepit::lifecycle::{ScriptError, StopMode, on_exit, set_exit_limit};
use snakepit::{CallError, Script, Snakepit, args, telemetry};
use tokio::sync::Notify;

use crate::{EmbedderOptions, hang, logs, tell};

/// The reason why a function fails.
pub(crate) struct ScriptFailure(String);

impl fmt::Display for ScriptFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<CallError> for ScriptFailure {
    fn from(error: CallError) -> Self {
        Self(error.to_string())
    }
}

/// Runs one script, as the options describe it.
pub(crate) fn one(options: &EmbedderOptions) -> ExitCode {
    logs::set(options.get("log"));
    hook(options);
    let runtime = options.runtime();
    let ended = runtime.block_on(async {
        for _ in 1..options.get("times").parse().unwrap_or(1) {
            report(&describe(options).run(async |pit| function(options, pit).await).await);
        }
        describe(options).run(async |pit| function(options, pit).await).await
    });
    report(&ended);
    if options.has("lingers") {
        tell("lingers");
        hang();
    }
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(ended: &Result<(), ScriptError<ScriptFailure>>) {
    match ended {
        Ok(()) => tell("returned"),
        Err(error) => tell(&format!("failed: {error}")),
    }
}

fn hook(options: &EmbedderOptions) {
    let hangs = options.get("hook") == "hangs";
    if options.has("hook") {
        on_exit("a hook", move || {
            tell("hook");
            if hangs {
                hang();
            }
        });
    }
    if let Some(limit) = options.millis("exit-limit") {
        set_exit_limit(limit);
    }
}

fn describe(options: &EmbedderOptions) -> Script {
    let mut script = snakepit::script(options.engine());
    if options.has("silent") {
        script = script.without_diagnostics();
    }
    if options.has("exit") {
        script = script.exit_mode(options.get("exit"));
    }
    if let Some(grace) = options.millis("grace") {
        script = script.grace(grace);
    }
    if options.has("endless") {
        script = script.grace(Duration::MAX).cleanup_timeout(Duration::MAX).await_timeout(Duration::MAX);
    }
    if let Some(timeout) = options.millis("cleanup") {
        script = script.cleanup_timeout(timeout);
    }
    script
}

async fn function(options: &EmbedderOptions, pit: Snakepit) -> Result<(), ScriptFailure> {
    match options.get("function") {
        "" => drop(pit.call::<u32>("echo", args! { value: 7 }).await?),
        "fails" => return Err(ScriptFailure("told to".into())),
        "panics" => panic!("told to"),
        "sleeps" => {
            tell("ready");
            std::future::pending::<()>().await;
        }
        "calls" => {
            let seconds = options.get("seconds").parse().unwrap_or(600.0);
            let call = tokio::spawn(pit.call::<f64>("sleep", args! { seconds: seconds }).into_future());
            under_way(&pit).await;
            tell("ready");
            call.await.map_err(|error| ScriptFailure(error.to_string()))??;
            tell("answered");
        }
        "heeds" => {
            tell("ready");
            pit.stopping().await;
            tell("heeded");
        }
        "refused" => {
            tell("ready");
            pit.stopping().await;
            let refused = pit.call::<u32>("echo", args! { value: 7 }).await;
            tell(if refused.is_err() { "refused" } else { "served" });
            refused?;
        }
        "blocks" => {
            tell("ready");
            hang();
        }
        "waits" => {
            let pid: u32 = pit.call("pid", args! {}).await?;
            tell(&format!("worker {pid}"));
            let line = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
            let _ = line.await;
        }
        "stops" => {
            pit.stop().await;
            let refused = pit.call::<u32>("echo", args! { value: 7 }).await;
            tell(if matches!(refused, Err(CallError::Stopped)) { "refused" } else { "served" });
        }
        "cleans-up" => tell(&format!("ended {}", Snakepit::cleanup().len())),
        other => panic!("no such function: {other}"),
    }
    Ok(())
}

/// Waits until a worker has a call.
pub(crate) async fn under_way(pit: &Snakepit) {
    while pit.pools()[0].in_flight() == 0 {
        tokio::task::yield_now().await;
    }
}

/// Runs two scripts in one process.
pub(crate) fn many(options: &EmbedderOptions) -> ExitCode {
    let runtime = options.runtime();
    match options.get("how") {
        // The second begins while the first ends.
        "overlap" => runtime.block_on(async {
            let ends = Arc::new(Notify::new());
            let told = Arc::clone(&ends);
            telemetry::observe(move |event| {
                if event.name() == "snakepit.script.shutdown.start" {
                    told.notify_one();
                }
            });
            let first = snakepit::script(options.engine()).run(async |_| Ok::<_, ScriptFailure>(()));
            let second = async {
                ends.notified().await;
                snakepit::script(options.engine()).run(async |pit| waiting(pit).await).await
            };
            let (first, second) = tokio::join!(first, second);
            report(&first);
            report(&second);
        }),
        // Both begin at the same time. The second is therefore embedded, but learns that only later.
        "together" => runtime.block_on(async {
            static READY: OnceLock<()> = OnceLock::new();
            let first = snakepit::script(options.engine()).run(async |pit| {
                let call = tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 1.0 }).into_future());
                under_way(&pit).await;
                while READY.get().is_none() {
                    tokio::task::yield_now().await;
                }
                tell("ready");
                let _ = call.await;
                tell("answered");
                Ok::<_, ScriptFailure>(())
            });
            let second = snakepit::script(options.engine()).run(async |_| {
                let _ = READY.set(());
                std::future::pending::<Result<(), ScriptFailure>>().await
            });
            let (first, second) = tokio::join!(first, second);
            report(&first);
            report(&second);
        }),
        // The future of the first script is dropped.
        "deserted" => runtime.block_on(async {
            let first = snakepit::script(options.engine()).run(async |pit| {
                let pid: u32 = pit.call("pid", args! {}).await?;
                tell(&format!("worker {pid}"));
                std::future::pending::<Result<(), ScriptFailure>>().await
            });
            tell(match tokio::time::timeout(Duration::from_secs(3), first).await {
                Ok(_) => "ended",
                Err(_) => "deserted",
            });
            report(&snakepit::script(options.engine()).run(async |pit| alone(pit).await).await);
        }),
        how => panic!("no such scripts: {how}"),
    }
    ExitCode::SUCCESS
}

async fn alone(pit: Snakepit) -> Result<(), ScriptFailure> {
    pit.call::<u32>("echo", args! { value: 7 }).await?;
    tell(&format!("runs {}", runs()));
    Ok(())
}

async fn waiting(pit: Snakepit) -> Result<(), ScriptFailure> {
    pit.call::<u32>("echo", args! { value: 7 }).await?;
    tell("ready");
    std::future::pending().await
}

/// Runs a script with its own pools inside a host that has an engine.
pub(crate) fn with_own_pools(options: &EmbedderOptions) -> ExitCode {
    let runtime = options.runtime();
    runtime.block_on(async {
        let host = options.engine().start_global().await.expect("the host's engine");
        let mode = if options.has("always") { StopMode::Always } else { StopMode::IfStarted };
        let ended = snakepit::script(options.engine())
            .stop_mode(mode)
            .run(async |pit| {
                assert_ne!(pit.run().map(Run::id), host.run().map(Run::id));
                tell(&format!("runs {}", runs()));
                Ok::<_, ScriptFailure>(())
            })
            .await;
        report(&ended);
        tell(&format!("runs {}", runs()));
        let served = host.call::<u32>("echo", args! { value: 7 }).await;
        tell(if served.is_ok() { "the host's engine serves" } else { "the host's engine is stopped" });
        host.stop().await;
        tell(&format!("runs {}", runs()));
    });
    ExitCode::SUCCESS
}

/// Returns the number of runs in the state directory.
fn runs() -> usize {
    let dir = std::env::var_os("SNAKEPIT_STATE_DIR").expect("a state directory");
    std::fs::read_dir(std::path::Path::new(&dir).join("runs")).map_or(0, Iterator::count)
}
