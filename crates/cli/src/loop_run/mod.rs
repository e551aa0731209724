//! `snakepit loop run`: the loops of a configuration in the foreground, until a signal ends them.
//!
//! Owns the command line and what is refused before anything is started; [`conduct`] runs the loops, [`table`] shows what they do.

mod conduct;
mod table;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use snakepit::lifecycle::ShutdownCoordinator;
use snakepit::telemetry::{Event, FieldValue, Level, observe};
use snakepit::{Config, ConfigError, Logging, LoopConfig, Snakepit};

use crate::call::HOME;
use crate::call::logs;
use crate::call::screen::Screen;
use crate::duration;
use crate::say::{self, Failure, USAGE};
use conduct::Conductor;

/// Run loops: each takes messages from a mailbox and calls a command with them.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Run(RunArgs),
}

/// Run the loops of a configuration in the foreground.
///
/// The configuration has a table `[loop.NAME]` for each loop, and `[service]` for all of them; `snakepit init DIR` writes one that lists
/// every key.
#[derive(clap::Args)]
#[command(after_help = HELP)]
struct RunArgs {
    /// The configuration; ./snakepit.toml unless it is named.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Make mailboxes that are not there, even if others in their files have names like theirs.
    #[arg(long)]
    create: bool,
    /// Answer /livez, /readyz and /startupz at this address, such as 127.0.0.1:8080; 0.0.0.0:8080 for Kubernetes.
    #[arg(long, value_name = "ADDRESS")]
    health: Option<SocketAddr>,
    /// How long a shutdown may take.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    shutdown_timeout: Option<Duration>,
    /// How often the table is shown, or its lines are printed: a second on a terminal, else ten.
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    every: Option<Duration>,
    /// Print lines of JSON.
    #[arg(long)]
    json: bool,
    /// Show on stderr what the workers print and log.
    #[arg(short = 'v', long)]
    logs: bool,
    /// Where the run is recorded.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// The loops; all of the configuration unless some are named.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

const HELP: &str = "\
Signals: the first TERM or INT (Ctrl-C) drains: what is in flight completes, what is not started is given back. The second
stops now: what is in flight is cancelled and given back. The third ends the process at once. No message is lost by any of them.

Exit status: 0 when all loops have ended in order;
  1    a loop did not end in time, or crashed, or the workers do not start
  2    this command line or the configuration cannot be used: a command, pool, loop or mailbox that is not there
  125  snakepit itself failed
  128+n when signal n cut it short (143 for a second TERM)";

pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let Verb::Run(args) = &args.verb;
    let path = args.config.as_deref().unwrap_or(Path::new(HOME));
    if args.config.is_none() && !path.exists() {
        return Err(Failure::plain(format!("there is no {HOME} here"))
            .status(USAGE)
            .hint("name a configuration with -c FILE; `snakepit init DIR` makes one"));
    }
    let config = Config::load(path).map_err(|error| {
        Failure::of(&error).status(USAGE).hint("`snakepit init DIR` writes a file that lists every key")
    })?;
    let refused = |error: ConfigError| Failure::of(&error).status(USAGE);
    let loops = with_pools(config.loops_named(&args.names).map_err(refused)?, &config);
    if !args.create {
        for one in &loops {
            let new = "if it is a new one, --create makes it";
            one.check_mailbox().map_err(|error| Failure::of(&error).status(USAGE).hint(new))?;
        }
    }
    let coordinator =
        ShutdownCoordinator::install().map_err(|error| Failure::new("cannot listen to signals", &error))?;
    let screen = Screen::new();
    if args.logs {
        logs::show(&screen);
    }
    show_warnings(&screen);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot start a runtime", &error))?;
    let mut service = config.service().clone();
    service.shutdown_timeout = args.shutdown_timeout.unwrap_or(service.shutdown_timeout);
    service.health = args.health.or(service.health);
    let builder = builder(&config, &loops, args);
    let conductor = Conductor { args, loops, service, coordinator, screen: screen.clone() };
    let end = runtime.block_on(conductor.conduct(builder));
    // Whatever was still being started ends here.
    drop(runtime);
    screen.keep_table();
    screen.finish();
    end
}

/// A loop that names no pool calls the first one.
fn with_pools(mut loops: Vec<LoopConfig>, config: &Config) -> Vec<LoopConfig> {
    for one in &mut loops {
        one.options.pool = one.options.pool.take().or_else(|| config.names().next().map(str::to_owned));
    }
    loops
}

/// Of the pools those that are called.
fn builder(config: &Config, loops: &[LoopConfig], args: &RunArgs) -> snakepit::Builder {
    let mut custody = config.custody().clone();
    if args.state_dir.is_some() {
        custody.state_dir.clone_from(&args.state_dir);
    }
    let is_called = |name: &str| loops.iter().any(|one| one.options.pool.as_deref() == Some(name));
    let logging = Logging::default().log_python_output(args.logs);
    let called = config.names().filter(|name| is_called(name));
    let pools = called.filter_map(|name| config.pool(name)).cloned();
    pools.fold(Snakepit::builder().custody(custody).logging(logging), snakepit::Builder::pool)
}

/// What loops and mailboxes tell that somebody should look at.
fn show_warnings(screen: &Screen) {
    let screen = screen.clone();
    observe(move |event| {
        if let Event::FileDamaged { path, trouble, .. } = event {
            screen.line(say::damage(path, trouble.as_deref()).trim_end());
        }
        let is_ours = |prefix: &str| event.name().starts_with(prefix);
        if event.level() != Level::Warn || !(is_ours("snakepit.loop.") || is_ours("snakepit.mailbox.")) {
            return;
        }
        let said = |(name, value): (&str, FieldValue<'_>)| match value {
            FieldValue::Absent => None,
            // A text in quotes, a duration as its seconds.
            value => serde_json::to_string(&value).ok().map(|value| format!("{name}={value}")),
        };
        let fields: Vec<String> = event.fields().into_iter().filter_map(said).collect();
        screen.line(&format!("{} {}", event.name(), fields.join(" ")));
    });
}
