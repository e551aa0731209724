//! The program `snakepit`, one module per command. Only the program prints and chooses exit statuses.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("the program snakepit needs Linux (signalfd, eventfd); the libraries do not");

mod bench;
mod call;
mod cleanup;
mod doctor;
mod env;
mod eval;
mod exec;
mod init;
mod ledger;
mod loops;
mod mailbox;
mod new_adapter;
mod sdk;
mod shared;

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::Parser;

use shared::exit_status;
use shared::failure::FailureFormat;

/// Run worker processes so that nothing they start outlives their owner.
#[derive(Parser)]
#[command(name = "snakepit", version, arg_required_else_help = true, after_help = STATE_HELP)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

const STATE_HELP: &str = "\
Runs are recorded in --state-dir, else $SNAKEPIT_STATE_DIR, else /var/lib/snakepit for root,
else $XDG_STATE_HOME/snakepit (~/.local/state/snakepit).";

#[derive(clap::Subcommand)]
enum CliCommand {
    Call(call::CallArgs),
    Init(init::InitArgs),
    Eval(eval::EvalArgs),
    Exec(exec::ExecArgs),
    Ledger(ledger::LedgerArgs),
    Loop(loops::LoopArgs),
    Mailbox(mailbox::MailboxArgs),
    NewAdapter(new_adapter::NewAdapterArgs),
    Cleanup(cleanup::CleanupArgs),
    Doctor(doctor::DoctorArgs),
    Env(env::EnvArgs),
    Sdk(sdk::SdkArgs),
    Bench(bench::BenchArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let status = match cli.command {
        CliCommand::Call(args) => Ok(call::run(&args)),
        CliCommand::Init(args) => init::run(&args),
        CliCommand::Eval(args) => eval::run(&args),
        CliCommand::Exec(args) => Ok(exec::run(&args)),
        CliCommand::Ledger(args) => ledger::run(&args),
        CliCommand::Loop(args) => loops::run(&args),
        CliCommand::Mailbox(args) => mailbox::run(args),
        CliCommand::NewAdapter(args) => new_adapter::run(&args),
        CliCommand::Cleanup(args) => cleanup::run(&args),
        CliCommand::Doctor(args) => doctor::run(&args),
        CliCommand::Env(args) => env::run(&args),
        CliCommand::Sdk(args) => sdk::run(&args),
        CliCommand::Bench(args) => bench::run(&args),
    };
    ExitCode::from(status.unwrap_or_else(|failure| failure.report(FailureFormat::Text)))
}

/// Reports a usage error or prints help. Help is a success. A wrong command line of `exec` is a failure of snakepit,
/// not of the command: 125.
fn usage(error: &clap::Error) -> ExitCode {
    // It does not matter if stdout or stderr is closed.
    let _ = error.print();
    ExitCode::from(if !error.use_stderr() {
        exit_status::SUCCESS
    } else if std::env::args_os().nth(1).as_deref() == Some(OsStr::new("exec")) {
        exit_status::INTERNAL
    } else {
        exit_status::USAGE
    })
}
