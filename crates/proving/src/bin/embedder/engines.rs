//! Engines whose ends affect the whole process. Each of them needs its own process.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use snakepit::{CallError, Snakepit, Value, args};
use snakepit_proving::ObservedProcess;

use crate::{EmbedderOptions, scripts, tell};

pub(crate) fn obey(options: &EmbedderOptions) -> ExitCode {
    let runtime = options.runtime();
    match options.get("how") {
        "cleanup" => cleanup(options, &runtime),
        "cleanup-beside-a-stop" => runtime.block_on(cleanup_beside_a_stop(options)),
        "cleanup-then-script" => runtime.block_on(async {
            let pit = options.engine().start_global().await.expect("an engine");
            tell(&format!("ended {}", Snakepit::cleanup().len()));
            another_script(options).await;
            drop(pit);
        }),
        "stop-given-up" => runtime.block_on(stop_given_up(options)),
        "drop-undriven" => drop_undriven(options, &runtime),
        "two" => runtime.block_on(two(options)),
        "stopped-by-another" => runtime.block_on(async {
            let pit = options.engine().start().await.expect("an engine");
            let served = tokio::spawn({
                let pit = pit.clone();
                async move { pit.until_shutdown().await }
            });
            while snakepit::ShutdownCoordinator::get().is_none() {
                tokio::task::yield_now().await;
            }
            pit.stop().await;
            tell(&format!("until_shutdown gave {:?}", served.await.expect("no panic").ok()));
        }),
        "serves" => {
            return runtime.block_on(async {
                let pit = options.engine().start().await.expect("an engine");
                // A signal that came before the installation would end the process.
                snakepit::ShutdownCoordinator::install().expect("signals");
                tell("ready");
                ExitCode::from(pit.until_shutdown().await.expect("signals"))
            });
        }
        how => panic!("no such way: {how}"),
    }
    ExitCode::SUCCESS
}

/// Cleans up by hand, twice, without a runtime and during a call.
fn cleanup(options: &EmbedderOptions, runtime: &tokio::runtime::Runtime) {
    let pit = runtime.block_on(options.engine().start()).expect("an engine");
    let pid: u32 = runtime.block_on(pit.call("pid", args! {}).into_future()).expect("a pid");
    let process = ObservedProcess::of(pid.cast_signed());
    let call = runtime.spawn(pit.call::<Value>("sleep", args! { seconds: 600.0 }).into_future());
    runtime.block_on(scripts::under_way(&pit));
    let reports = Snakepit::cleanup();
    tell(&format!("ended {} clean {}", reports.len(), reports.iter().all(|run| run.report.is_clean())));
    tell(&format!("worker alive {}", process.is_alive()));
    tell(&format!("again {}", Snakepit::cleanup().len()));
    runtime.block_on(async {
        let answer = call.await.expect("no panic");
        tell(if answer.is_err() { "call failed" } else { "call answered" });
        let refused = pit.call::<u32>("echo", args! { value: 7 }).await;
        tell(if matches!(refused, Err(CallError::Stopped)) { "refused" } else { "not refused" });
        let began = Instant::now();
        pit.stop().await;
        tell(&format!("stopped soon {}", began.elapsed() < Duration::from_secs(10)));
    });
}

async fn cleanup_beside_a_stop(options: &EmbedderOptions) {
    let pit = options.engine().start().await.expect("an engine");
    let call = tokio::spawn(pit.call::<Value>("sleep", args! { seconds: 600.0 }).into_future());
    scripts::under_way(&pit).await;
    let stop = tokio::spawn({
        let pit = pit.clone();
        async move { pit.stop().await }
    });
    pit.stopping().await;
    let ended = tokio::task::spawn_blocking(Snakepit::cleanup).await.expect("no panic");
    tell(&format!("ended {}", ended.len()));
    stop.await.expect("no panic");
    tell(if call.await.expect("no panic").is_err() { "call failed" } else { "call answered" });
}

/// Gives up waiting for a stop. Even so, the next process-wide engine must not wait forever.
async fn stop_given_up(options: &EmbedderOptions) {
    let pit = options.engine().start_global().await.expect("an engine");
    let call = tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 0.5 }).into_future());
    scripts::under_way(&pit).await;
    let given_up = tokio::time::timeout(Duration::from_millis(1), pit.stop()).await;
    tell(if given_up.is_err() { "given up" } else { "stopped" });
    another_script(options).await;
    tell(if call.await.expect("no panic").is_ok() { "call answered" } else { "call failed" });
    drop(pit);
}

async fn another_script(options: &EmbedderOptions) {
    let script =
        snakepit::script(options.engine()).run(async |pit| pit.call::<u32>("echo", args! { value: 7 }).await);
    let ended = tokio::time::timeout(Duration::from_secs(20), script).await;
    tell(match ended {
        Ok(Ok(7)) => "another script ran",
        Ok(_) => "another script failed",
        Err(_) => "another script waits for ever",
    });
}

/// Drops the last handle while the runtime is neither driven nor dropped.
fn drop_undriven(options: &EmbedderOptions, runtime: &tokio::runtime::Runtime) {
    let pit = runtime.block_on(options.engine().start()).expect("an engine");
    let pid: u32 = runtime.block_on(pit.call("pid", args! {}).into_future()).expect("a pid");
    let thread = std::thread::spawn(move || drop(pit));
    thread.join().expect("no panic");
    must_end(pid);
    tell("the worker is gone");
}

async fn two(options: &EmbedderOptions) {
    let (one, other) = tokio::join!(options.engine().start(), options.engine().start());
    let (one, other) = (one.expect("an engine"), other.expect("an engine"));
    one.stop().await;
    let refused = one.call::<u32>("echo", args! { value: 7 }).await;
    tell(if matches!(refused, Err(CallError::Stopped)) { "refused" } else { "not refused" });
    let served = other.call::<u32>("echo", args! { value: 7 }).await;
    tell(if served.is_ok() { "served" } else { "not served" });
    tell(&format!("ended {}", Snakepit::cleanup().len()));
    let refused = other.call::<u32>("echo", args! { value: 7 }).await;
    tell(if matches!(refused, Err(CallError::Stopped)) { "refused" } else { "not refused" });
}

/// Fails unless the process ends soon.
pub(crate) fn must_end(pid: u32) {
    if let Some(process) = ObservedProcess::open(pid.cast_signed()).expect("pidfd_open") {
        process.must_end("the worker");
    }
}
