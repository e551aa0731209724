//! The program `snakepit`: one file per verb. The only room that prints and chooses exit codes.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("the program snakepit waits by signalfd and eventfd: it is for Linux, the libraries are not");

mod bench;
mod call;
mod cleanup;
mod doctor;
mod duration;
mod env;
mod eval;
mod exec;
mod init;
mod ledger;
mod loop_run;
mod mailbox;
mod new_adapter;
mod say;
mod sdk;
mod signals;
mod table;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use say::Failure;
use snakepit::custody::OpenError;

/// Runs worker processes so that nothing they start outlives their owner.
#[derive(Parser)]
#[command(name = "snakepit", version, arg_required_else_help = true, after_help = STATE_HELP)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const STATE_HELP: &str = "\
State: runs are recorded in --state-dir, else $SNAKEPIT_STATE_DIR, else /var/lib/snakepit for root,
else $XDG_STATE_HOME/snakepit (~/.local/state/snakepit).";

#[derive(clap::Subcommand)]
enum Verb {
    Call(call::Args),
    Init(init::Args),
    Eval(eval::Args),
    Exec(exec::Args),
    Ledger(ledger::Args),
    Loop(loop_run::Args),
    Mailbox(mailbox::Args),
    NewAdapter(new_adapter::Args),
    Cleanup(cleanup::Args),
    Doctor(doctor::Args),
    Env(env::Args),
    Sdk(sdk::Args),
    Bench(bench::Args),
}

/// Where a verb finds the records, and how it prints what it found.
#[derive(clap::Args)]
struct Common {
    /// Where runs are recorded.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Print one JSON object instead of text for people.
    #[arg(long)]
    json: bool,
}

impl Common {
    fn state_dir(&self) -> Result<PathBuf, Failure> {
        match &self.state_dir {
            Some(dir) => Ok(dir.clone()),
            None => snakepit::custody::default_state_dir().map_err(|error| {
                Failure::new("cannot choose a state directory", &error).hint("name one with --state-dir")
            }),
        }
    }
}

/// The records cannot be read: custody's words name the directory, ours the way out.
fn cannot_use_state(error: &OpenError) -> Failure {
    Failure::of(error).hint("--state-dir or SNAKEPIT_STATE_DIR name another place to record runs")
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let status = match cli.verb {
        Verb::Call(args) => Ok(call::run(&args)),
        Verb::Init(args) => init::run(&args),
        Verb::Eval(args) => eval::run(&args),
        Verb::Exec(args) => Ok(exec::run(&args)),
        Verb::Ledger(args) => ledger::run(&args),
        Verb::Loop(args) => loop_run::run(&args),
        Verb::Mailbox(args) => mailbox::run(args),
        Verb::NewAdapter(args) => new_adapter::run(&args),
        Verb::Cleanup(args) => cleanup::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Env(args) => env::run(&args),
        Verb::Sdk(args) => sdk::run(&args),
        Verb::Bench(args) => bench::run(&args),
    };
    ExitCode::from(status.unwrap_or_else(|failure| failure.report()))
}

/// Help is a success. A wrong command line is, for `exec`, a failure of ours and not of the command: 125.
fn usage(error: &clap::Error) -> ExitCode {
    // A closed stdout or stderr changes nothing.
    let _ = error.print();
    if !error.use_stderr() {
        ExitCode::SUCCESS
    } else if std::env::args_os().nth(1).as_deref() == Some(OsStr::new("exec")) {
        ExitCode::from(say::OURS)
    } else {
        ExitCode::from(say::USAGE)
    }
}
