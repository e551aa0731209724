//! `snakepit call`: starts a worker, calls a command, prints the result, and leaves nothing behind.
//!
//! Owns the command line and the exit status. [`arguments`] parses the command's arguments, [`mod@run`] makes the call,
//! [`result_format`] and [`result_writer`] print the result, and [`failure`] explains what went wrong.

mod arguments;
mod failure;
mod result_format;
mod result_writer;
mod run;

use std::path::PathBuf;
use std::time::Duration;

use snakepit::environment::Environment;
use tokio::runtime::Builder;

use crate::env::progress::{self, WithoutTerminal};
use crate::shared::failure::{CliFailure, FailureFormat};
use crate::shared::interrupts::{Interrupts, WatchedSources};
use crate::shared::options::StateDirOption;
use crate::shared::target::{CallTarget, WireAdapter};
use crate::shared::{duration, engine, worker_output};
use result_format::ResultFormat;
use run::CallRun;

/// Call a command of a worker and print its result.
///
/// The worker is a Python file or module (-w), or a pool of a configuration (-c, by default ./snakepit.toml). One worker is
/// started for the call, whatever the configuration says, and nothing that was started is left behind.
#[derive(clap::Args)]
#[command(
    after_help = HELP,
    override_usage = "snakepit call [-w WORKER | -c FILE] [OPTIONS] COMMAND [KEY=TEXT | KEY:=JSON | @FILE]..."
)]
pub(crate) struct CallArgs {
    /// Call this Python worker: a file (worker.py) or a module. With --adapter: a program, or a Python file without the SDK.
    #[arg(short, long, value_name = "WORKER", conflicts_with = "config")]
    worker: Option<PathBuf>,
    /// Speak to the worker through this adapter instead of the SDK's socket.
    #[arg(long, value_name = "ADAPTER", requires = "worker")]
    adapter: Option<WireAdapter>,
    /// Read the pools from this configuration.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Call this pool of the configuration instead of the first one.
    #[arg(long, value_name = "NAME", conflicts_with = "worker")]
    pool: Option<String>,
    /// Make the call part of this session.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Give up after this time, which includes the start of the worker.
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    timeout: Option<Duration>,
    /// Print the values of a generator as they arrive.
    #[arg(long)]
    stream: bool,
    /// Print strict JSON, one value per line; errors are JSON lines on stderr.
    #[arg(long)]
    json: bool,
    /// Show on stderr what the worker prints and logs. Progress bars are drawn on a terminal; elsewhere they are a line every second.
    #[arg(short = 'v', long)]
    logs: bool,
    /// Give the worker this terminal and no time limits, so that `breakpoint()` works.
    #[arg(long)]
    debug: bool,
    #[command(flatten)]
    state: StateDirOption,
    /// The command to call.
    #[arg(value_name = "COMMAND")]
    command: String,
    /// The command's arguments, by name.
    #[arg(value_name = "ARG")]
    arguments: Vec<String>,
}

const HELP: &str = include_str!("help.txt");

/// Makes the call and returns the exit status.
pub(crate) fn run(args: &CallArgs) -> u8 {
    attempt(args).unwrap_or_else(|failure| failure.report(FailureFormat::of_option(args.json)))
}

fn attempt(args: &CallArgs) -> Result<u8, CliFailure> {
    // The whole command line is checked before anything starts.
    let arguments = arguments::parse(&args.arguments)?;
    let target = target(args)?;
    let sources = if args.stream { WatchedSources::SignalsAndReader } else { WatchedSources::Signals };
    let interrupts = Interrupts::watch(sources)?;
    let display = worker_output::display(args.logs);
    if target.pool.environment().is_some_and(Environment::installs) {
        progress::show(&display, WithoutTerminal::Silent);
    }
    let runtime = engine::runtime(Builder::new_multi_thread().worker_threads(1))?;
    let format = if args.json { ResultFormat::Json } else { ResultFormat::for_people() };
    let call = CallRun { args, target, arguments, format, display: display.clone(), interrupts };
    let status = runtime.block_on(call.run());
    // Dropping the runtime waits for everything that is still starting.
    drop(runtime);
    display.clear();
    Ok(status)
}

fn target(args: &CallArgs) -> Result<CallTarget, CliFailure> {
    let CallTarget { pool, custody } = match (&args.worker, args.adapter) {
        (Some(worker), Some(adapter)) => CallTarget::program(worker, adapter)?,
        (Some(worker), None) => CallTarget::python(worker)?,
        (None, _) => CallTarget::configured(args.config.as_deref(), args.pool.as_deref())?,
    };
    // One call needs one worker.
    let pool = pool.workers(1);
    let pool = if args.debug { pool.debug() } else { pool };
    Ok(CallTarget { pool, custody: args.state.apply(custody) })
}
