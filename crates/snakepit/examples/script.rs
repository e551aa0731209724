//! A script: an engine around one function, and every way to end. You can run each row of the tables in
//! docs/lifecycle.md:
//!
//! `cargo run -p snakepit --example script -- --exit-mode stop --fail --events /dev/stderr; echo $?`

use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use snakepit::lifecycle::StopMode;
use snakepit::{Builder, CallError, Script, ScriptError, Snakepit, args, python, telemetry};

const USAGE: &str = "usage: script [--exit-mode none|halt|stop|auto] [--stop-mode if_started|always|never] \
    [--embedded] [--until-the-end] [--call] [--fail] [--panic] [--no-halt] [--events FILE] [--log] [--sleep DURATION]";

/// The options of the command line.
#[derive(Default)]
struct Options {
    exit_mode: Option<String>,
    stop_mode: Option<String>,
    embedded: bool,
    /// Waits until a signal, or other code, ends the engine.
    until_the_end: bool,
    /// Makes one more call after that.
    call: bool,
    fail: bool,
    panic: bool,
    sleep: Duration,
}

/// Why the function fails.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("it was told to fail")]
    Told,
    #[error(transparent)]
    Call(#[from] CallError),
}

fn main() -> ExitCode {
    let options = match read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "script: {reason}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error),
    };
    runtime.block_on(async {
        // The engine of a host in which a script is embedded.
        let host = if options.embedded {
            match engine().start_global().await {
                Ok(host) => Some(host),
                Err(error) => return complain(&error),
            }
        } else {
            None
        };
        let ended = describe(&options).run(async |pit| work(&options, pit).await).await;
        if let Some(host) = host {
            let state = if Snakepit::global().is_some() { "still runs" } else { "was stopped" };
            let _ = writeln!(io::stdout(), "the host's engine {state}");
            host.stop().await;
        }
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(error @ ScriptError::Argument(_)) => {
                let _ = complain(&error);
                ExitCode::from(2)
            }
            Err(error) => complain(&error),
        }
    })
}

fn engine() -> Builder {
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.py");
    Snakepit::builder().pool(python(worker).workers(1))
}

/// Returns the script that the options describe. An embedded script uses the engine of its host.
fn describe(options: &Options) -> Script {
    let engine = if options.embedded { Snakepit::builder() } else { engine() };
    let mut script = snakepit::script(engine).stop_mode(StopMode::IfStarted);
    if let Some(mode) = options.exit_mode.as_deref() {
        script = script.exit_mode(mode);
    }
    if let Some(mode) = options.stop_mode.as_deref() {
        script = script.stop_mode(mode);
    }
    script
}

async fn work(options: &Options, pit: Snakepit) -> Result<(), Failure> {
    let greeting: String = pit.call("greet", args! { name: "World" }).await?;
    // The output may have no reader any more.
    let _ = writeln!(io::stdout(), "{greeting}");
    tokio::time::sleep(options.sleep).await;
    if options.until_the_end {
        let _ = writeln!(io::stdout(), "it waits for the end");
        pit.stopping().await;
    }
    if options.call {
        let _: String = pit.call("greet", args! { name: "again" }).await?;
    }
    assert!(!options.panic, "it was told to panic");
    if options.fail { Err(Failure::Told) } else { Ok(()) }
}

fn complain(error: &dyn std::error::Error) -> ExitCode {
    let _ = writeln!(io::stderr(), "script: {error}");
    ExitCode::FAILURE
}

fn read(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--exit-mode" => options.exit_mode = Some(value()?),
            "--stop-mode" => options.stop_mode = Some(value()?),
            "--embedded" => options.embedded = true,
            "--until-the-end" => options.until_the_end = true,
            "--call" => options.call = true,
            "--log" => write_log(),
            "--fail" => options.fail = true,
            "--panic" => options.panic = true,
            // The library looks for this argument itself.
            "--no-halt" => {}
            "--events" => write_events(&value()?)?,
            "--sleep" => options.sleep = duration(&value()?)?,
            _ => return Err(format!("unknown option {argument}")),
        }
    }
    Ok(options)
}

/// Writes one line of JSON for each event of the lifecycle. Written at once, so that nothing is left to do at the exit.
fn write_events(path: &str) -> Result<(), String> {
    let file = File::options().create(true).append(true).open(path);
    let file = file.map_err(|error| format!("cannot write events to {path}: {error}"))?;
    telemetry::observe(move |event| {
        if event.name().starts_with("snakepit.script.")
            && let Ok(line) = serde_json::to_string(event)
        {
            let _ = (&file).write_all(format!("{line}\n").as_bytes());
        }
    });
    Ok(())
}

/// Writes the library's `tracing` output to standard error.
fn write_log() {
    let subscriber = tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false);
    let _ = tracing::subscriber::set_global_default(subscriber.finish());
}

/// Parses `2`, `2s`, `500ms` or `1m`.
fn duration(text: &str) -> Result<Duration, String> {
    let unit = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let factor = match &text[unit..] {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        _ => return Err(format!("{text} is no duration: write 2s, 500ms or 1m")),
    };
    let number: f64 =
        text[..unit].parse().map_err(|_| format!("{text} is no duration: write 2s, 500ms or 1m"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|error| format!("{text} is no duration: {error}"))
}
