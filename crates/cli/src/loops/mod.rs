//! `snakepit loop run`: runs the loops of a configuration in the foreground, until a signal ends them.
//!
//! Owns the command line and the checks before anything starts. [`mod@run`] runs the loops, [`status`] shows what they
//! do.

mod run;
mod status;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use snakepit::config::LoopConfig;
use snakepit::lifecycle::ShutdownCoordinator;
use snakepit::telemetry::{FieldValue, Level, observe};
use snakepit::{Config, Snakepit};
use tokio::runtime::Builder;

use crate::shared::failure::CliFailure;
use crate::shared::options::StateDirOption;
use crate::shared::output::display::ProgressDisplay;
use crate::shared::target::load_config;
use crate::shared::{duration, engine, worker_output};
use run::LoopRun;

/// Run loops, each of which takes messages from a mailbox and calls a command with them.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct LoopArgs {
    #[command(subcommand)]
    command: LoopCommand,
}

#[derive(clap::Subcommand)]
enum LoopCommand {
    Run(LoopRunArgs),
}

/// Run the loops of a configuration in the foreground.
///
/// The configuration has a table `[loop.NAME]` for each loop, and `[service]` for all of them. `snakepit init DIR` writes a
/// configuration that lists every key.
#[derive(clap::Args)]
#[command(after_help = HELP)]
struct LoopRunArgs {
    /// Read this configuration instead of ./snakepit.toml.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Create mailboxes, and their files, that are missing.
    #[arg(long)]
    create: bool,
    /// Answer /livez, /readyz and /startupz at this address, such as 127.0.0.1:8080; 0.0.0.0:8080 for Kubernetes.
    #[arg(long, value_name = "ADDRESS")]
    health: Option<SocketAddr>,
    /// Let a shutdown take at most this long.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    shutdown_timeout: Option<Duration>,
    /// Show the table, or print its lines, this often (by default every second on a terminal, else every ten).
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    every: Option<Duration>,
    /// Print lines of JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Show on stderr what the workers print and log.
    #[arg(short = 'v', long)]
    logs: bool,
    #[command(flatten)]
    state: StateDirOption,
    /// The loops to run (by default all of the configuration).
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

const HELP: &str = "\
The first TERM or INT (Ctrl-C) drains: messages in flight complete, and messages that were not started go back to the mailbox.
The second cancels messages in flight and gives them back. The third ends the process at once. None of them loses a message.

Exit status: 0 when all loops ended in order;
  1      a loop crashed or did not end in time, or the workers do not start
  2      the command line or the configuration cannot be used: a command, pool, loop or mailbox does not exist
  125    snakepit itself failed
  128+n  signal n cut it short (143 for a second TERM)

Write times as 3s, 500ms, 2m or a number of seconds.";

pub(crate) fn run(args: &LoopArgs) -> Result<u8, CliFailure> {
    let LoopCommand::Run(args) = &args.command;
    let config = load_config(args.config.as_deref(), "name a configuration with -c FILE")?;
    let loops = config.loops_named(&args.names).map_err(|error| CliFailure::usage_of(&error))?;
    let loops = with_pools(loops, &config);
    if !args.create {
        for one in &loops {
            one.check_mailbox().map_err(|error| {
                CliFailure::usage_of(&error).hint(format!(
                    "if it is a new one, create it with --create, or with `create = true` in [loop.{}]",
                    one.name()
                ))
            })?;
        }
    }
    let coordinator = ShutdownCoordinator::install()
        .map_err(|error| CliFailure::new("cannot listen for signals", &error))?;
    let display = worker_output::display(args.logs);
    show_warnings(&display);
    let runtime = engine::runtime(&mut Builder::new_multi_thread())?;
    let mut service = config.service().clone();
    service.shutdown_timeout = args.shutdown_timeout.unwrap_or(service.shutdown_timeout);
    service.health = args.health.or(service.health);
    let builder = builder(&config, &loops, args);
    let loops_run = LoopRun { args, loops, service, coordinator, display: display.clone() };
    let end = runtime.block_on(loops_run.run(builder));
    // Dropping the runtime waits for everything that is still starting.
    drop(runtime);
    display.keep_table();
    display.finish();
    end
}

/// Gives every loop without a pool the first pool of the configuration.
fn with_pools(mut loops: Vec<LoopConfig>, config: &Config) -> Vec<LoopConfig> {
    for one in &mut loops {
        one.options.pool = one.options.pool.take().or_else(|| config.names().next().map(str::to_owned));
    }
    loops
}

/// Returns an engine with the pools that the loops call.
fn builder(config: &Config, loops: &[LoopConfig], args: &LoopRunArgs) -> snakepit::Builder {
    let custody = args.state.apply(config.custody().clone());
    let is_called = |name: &str| loops.iter().any(|one| one.options.pool.as_deref() == Some(name));
    let logging = crate::shared::engine::logging(args.logs);
    let called = config.names().filter(|name| is_called(name));
    let pools = called.filter_map(|name| config.pool(name)).cloned();
    pools.fold(Snakepit::builder().custody(custody).logging(logging), snakepit::Builder::pool)
}

/// Shows the warnings of loops and mailboxes from now on.
fn show_warnings(display: &ProgressDisplay) {
    let display = display.clone();
    observe(move |event| {
        let is_ours = |prefix: &str| event.name().starts_with(prefix);
        if event.level() != Level::Warn || !(is_ours("snakepit.loop.") || is_ours("snakepit.mailbox.")) {
            return;
        }
        let shown = |(name, value): (&str, FieldValue<'_>)| match value {
            FieldValue::Absent => None,
            // Text is in quotes, and a duration is in seconds.
            value => serde_json::to_string(&value).ok().map(|value| format!("{name}={value}")),
        };
        let fields: Vec<String> = event.fields().into_iter().filter_map(shown).collect();
        display.line(&format!("{} {}", event.name(), fields.join(" ")));
    });
}
