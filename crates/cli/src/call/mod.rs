//! `snakepit call`: starts what a call needs, calls, prints the result, and leaves nothing behind.
//!
//! Owns the command line, the order of things and the exit status. [`target`] finds out who is called, [`arguments`]
//! with what; [`conduct`] makes the call; [`outside`] hears of signals and of a reader that has gone; [`printer`] and
//! [`screen`] write the result and what accompanies it; [`trouble`] says what went wrong.

mod arguments;
mod conduct;
mod form;
pub(crate) mod logs;
pub(crate) mod outside;
mod printer;
pub(crate) mod screen;
pub(crate) mod target;
mod trouble;

use std::path::PathBuf;
use std::time::Duration;

use snakepit::environment::Environment;
use snakepit::telemetry::{Event, observe};

use crate::duration;
use crate::env::progress::{self, Elsewhere};
use crate::say::{self, Failure};
use conduct::{Conductor, End};
use form::Form;
use outside::{Attention, Outside};
use screen::Screen;
use target::{AdapterName, Target};
use trouble::Trouble;

pub(crate) use target::HOME;

/// Call a command of a worker and print what it answers; nothing that was started is left.
///
/// The worker is a Python file or module (-w), or a pool of a configuration (-c; ./snakepit.toml if neither is given).
/// One worker is started for the call, whatever number the configuration has.
#[derive(clap::Args)]
#[command(
    after_help = HELP,
    override_usage = "snakepit call [-w WORKER | -c FILE] [OPTIONS] COMMAND [KEY=TEXT | KEY:=JSON | @FILE]..."
)]
pub(crate) struct Args {
    /// A Python worker: its file (worker.py), or its module. With --adapter: a program, or a Python file without the SDK.
    #[arg(short, long, value_name = "WORKER", conflicts_with = "config")]
    worker: Option<PathBuf>,
    /// How the worker is spoken to, if not over the SDK's own socket: lines of JSON on its standard streams, HTTP, or gRPC.
    #[arg(long, value_name = "ADAPTER", requires = "worker")]
    adapter: Option<AdapterName>,
    /// A configuration that says what the pools are.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The pool of the configuration that is called; its first one unless this is said.
    #[arg(long, value_name = "NAME", conflicts_with = "worker")]
    pool: Option<String>,
    /// The session that the call belongs to.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// How long it may take in all, the start of the worker included.
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    timeout: Option<Duration>,
    /// Print the values of a generator as they come.
    #[arg(long)]
    stream: bool,
    /// Print strict JSON, one value per line. An error is told on stderr as a line of JSON, too.
    #[arg(long)]
    json: bool,
    /// Show on stderr what the worker prints and logs. Its progress bars are drawn there; in a file they are a line every second.
    #[arg(short = 'v', long)]
    logs: bool,
    /// Give the worker this terminal and all the time it wants, so that `breakpoint()` works and its output is shown.
    #[arg(long)]
    debug: bool,
    /// Where the run is recorded.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// The command.
    #[arg(value_name = "COMMAND")]
    command: String,
    /// Its arguments, by name.
    #[arg(value_name = "ARG")]
    arguments: Vec<String>,
}

const HELP: &str = "\
How arguments are written:
  key=text      text; key=@file is the text of a file
  key:=json     any JSON: n:=3, on:=true, list:='[1, 2]'; key:=@file is the JSON in a file
  key:bytes=@x  the bytes of a file: image:bytes=@x.png
  key:time=t    a date-time: 2026-01-31T12:00:00Z, with another offset, or without one
  @file         a JSON object with many arguments; those that follow replace its entries
The file - is standard input: @-, key=@-, key:=@-, key:bytes=@-. Text that begins with @ is written as JSON: key:='\"@x\"'.

Results: text is printed as it is, bytes as they are (on a terminal: like b\"\\x00\"), other values like JSON. With
--json text is quoted, bytes are base64, date-times RFC 3339, numbers that JSON has not (NaN, infinities) null, and a map
with keys that JSON cannot tell apart (1 and \"1\") a list of pairs.

Ctrl-C and TERM cancel the call as its pool has it (a flag, an exception, TERM, KILL); a second one kills at once.

Exit status: 0 when the command answered;
  1    it failed: an exception, an unknown command, a worker that died or could not be loaded
  2    this command line or the configuration cannot be used
  124  --timeout, or a limit of the pool, ended it
  125  snakepit itself failed
  128+n when signal n ended it (130 for Ctrl-C)

Times are written as 3s, 500ms, 2m or a number of seconds.";

/// Calls, and gives back the exit status.
pub(crate) fn run(args: &Args) -> u8 {
    attempt(args).unwrap_or_else(|failure| {
        let status = failure.report();
        if args.json {
            say::err(&trouble::json(status, &serde_json::json!({ "message": failure.text() })));
        }
        status
    })
}

fn attempt(args: &Args) -> Result<u8, Failure> {
    // All that can be wrong with what was asked is said before anything is started.
    let arguments = arguments::parse(&args.arguments)?;
    let target = Target::find(args)?;
    let attention = if args.stream { Attention::SignalsAndReader } else { Attention::Signals };
    let outside =
        Outside::watch(attention).map_err(|error| Failure::new("cannot listen to signals", &error))?;
    let screen = Screen::new();
    if args.logs {
        logs::show(&screen);
    }
    let shown = screen.clone();
    observe(move |event| {
        if let Event::FileDamaged { path, trouble, .. } = event {
            shown.line(say::damage(path, trouble.as_deref()).trim_end());
        }
    });
    if target.pool.environment().is_some_and(Environment::installs) {
        progress::show(&screen, Elsewhere::Silent);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot start a runtime", &error))?;
    let form = if args.json { Form::Json } else { Form::for_people() };
    let conductor = Conductor { args, target, arguments, form, screen: screen.clone(), outside };
    let end = runtime.block_on(conductor.conduct());
    // Whatever was still being started ends here.
    drop(runtime);
    screen.clear();
    Ok(match end {
        End::Answered | End::Unread => 0,
        End::Interrupted(signal) => 128 + signal as u8,
        End::Told(status) => status,
    })
}

/// Tells what went wrong, at once: what follows may take a moment.
fn tell(args: &Args, screen: &Screen, trouble: &Trouble<'_>) -> End {
    screen.finish();
    let (status, mut text) = (trouble.status(), trouble.text());
    if args.json {
        text.push_str(&trouble::json(status, &trouble.json()));
    }
    say::err(&text);
    End::Told(status)
}
