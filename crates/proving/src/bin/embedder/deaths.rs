//! Hosts that end without stopping their engine.

use std::process::ExitCode;
use std::sync::OnceLock;

use snakepit::{Snakepit, Value, args};

use crate::{EmbedderOptions, hang, scripts, tell};

static KEPT: OnceLock<Snakepit> = OnceLock::new();

pub(crate) fn die(options: &EmbedderOptions) -> ExitCode {
    let runtime = options.runtime();
    let pit = runtime.block_on(options.engine().start()).expect("an engine");
    let pid: u32 = runtime.block_on(pit.call("pid", args! {}).into_future()).expect("a pid");
    tell(&format!("worker {pid}"));
    match options.get("how") {
        "return" => {
            // Neither the engine nor its runtime is ever dropped.
            let _ = KEPT.set(pit);
            std::mem::forget(runtime);
        }
        "return-in-flight" => {
            runtime.spawn(pit.call::<Value>("sleep", args! { seconds: 600.0 }).into_future());
            runtime.block_on(scripts::under_way(&pit));
            let _ = KEPT.set(pit);
            std::mem::forget(runtime);
        }
        "exit" => std::process::exit(3),
        "abort" => std::process::abort(),
        "panic" => panic!("told to"),
        "panic-inside" => runtime.block_on(async move {
            let _pit = pit;
            panic!("told to")
        }),
        "panic-in-a-thread" => {
            let ended = std::thread::spawn(move || {
                let _pit = pit;
                panic!("told to");
            });
            let _ = ended.join();
            return outlive(pid);
        }
        "panic-in-a-task" => {
            let task = runtime.spawn(async move {
                let _pit = pit;
                panic!("told to");
            });
            let _ = runtime.block_on(task);
            return outlive(pid);
        }
        "wait" => {
            tell("ready");
            hang();
        }
        how => panic!("no such death: {how}"),
    }
    ExitCode::from(3)
}

/// Shows that the host lives on and its worker does not.
fn outlive(pid: u32) -> ExitCode {
    crate::engines::must_end(pid);
    tell("the worker is gone");
    ExitCode::from(3)
}
