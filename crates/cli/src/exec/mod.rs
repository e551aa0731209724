//! `snakepit exec`: runs any command in custody and ends as the command ended.
//!
//! Owns the command line, the order of things and the exit status. [`signals`] knows how signals come in and
//! how a process stops itself, [`terminal`] who has the terminal, [`watch`] what happens in between.

mod orphans;
mod outcome;
mod signals;
mod terminal;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use snakepit::custody::{
    Command, Config, Containment, Event, Events, OpenError, Run, Session, SpawnError, Stdio, TerminalUse,
    Worker,
};

use crate::duration;
use crate::say::{self, Failure};
pub(crate) use outcome::Left;
use outcome::Outcome;
use signals::Signals;
use terminal::Terminal;

/// Run a command so that nothing it starts is alive when it has ended, however it ends.
///
/// Standard input, output and error are the command's. INT, QUIT, WINCH, USR1 and USR2 are passed on to it; the
/// first TERM or HUP is passed on as well and starts --grace, after which everything is killed. When snakepit
/// itself is killed, the command and all it started die within milliseconds.
#[derive(clap::Args)]
#[command(after_help = EXIT_HELP, override_usage = "snakepit exec [OPTIONS] -- CMD [ARGS]...")]
pub(crate) struct Args {
    /// How the command is held: a PID namespace, a subreaper, or a process group only (auto: shim).
    #[arg(long, value_enum, default_value_t = TierChoice::Auto)]
    tier: TierChoice,
    /// How long the command has between TERM and KILL.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration::parse)]
    grace: Duration,
    /// Start N of them, with /dev/null as input, and wait for all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_COPIES))]
    copies: Option<u16>,
    /// Where the run is recorded.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// End the command after this time (TERM, --grace, KILL) with status 124.
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    timeout: Option<Duration>,
    /// When all is over, print one line of JSON on stderr: run, tier, status, and every copy's end.
    #[arg(long)]
    json: bool,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const MAX_COPIES: i64 = 4096;

const EXIT_HELP: &str = "\
Exit status: that of the command, or 128+n when signal n ended it;
  124  --timeout ended it (also when KILL was needed)
  125  snakepit itself failed
  126  the command was found but cannot be executed
  127  the command was not found
With --copies it is the first status by index that is not zero.

Times are written as 3s, 500ms, 2m or a number of seconds.";

#[derive(Clone, Copy, clap::ValueEnum)]
enum TierChoice {
    Auto,
    Namespace,
    Shim,
    Group,
}

impl From<TierChoice> for Containment {
    fn from(choice: TierChoice) -> Self {
        match choice {
            TierChoice::Auto => Self::Auto,
            TierChoice::Namespace => Self::Namespace,
            TierChoice::Shim => Self::Shim,
            TierChoice::Group => Self::Group,
        }
    }
}

/// Runs the command and gives back the exit status.
pub(crate) fn run(args: &Args) -> u8 {
    match in_custody(args) {
        Ok(outcome) => outcome.conclude(args.json),
        Err(failure) => {
            let status = failure.report();
            if args.json {
                say::err(&say::json(&serde_json::json!({ "status": status, "error": failure.text() })));
            }
            status
        }
    }
}

fn in_custody(args: &Args) -> Result<Outcome, Failure> {
    let [stdin_was_closed, _, _] = snakepit::custody::startup::closed_stdio();
    if args.copies.is_none() && stdin_was_closed {
        return Err(Failure::plain("standard input is closed, so the command has none to inherit")
            .hint("run it with </dev/null if it needs no input"));
    }
    let signals = Signals::take().map_err(|error| Failure::new("cannot listen to signals", &error))?;
    // Declared before the run, so that the terminal comes back after everything has ended, on every path.
    let mut terminal = if args.copies.is_none() { Terminal::find() } else { None };

    let run = Run::open(config(args, terminal.as_ref())).map_err(|error| cannot_open(&error))?;
    let events = run.events();
    for event in events.iter().flat_map(Events::drain) {
        if let Event::FileDamaged { path, trouble } = event {
            say::err(&say::damage(&path.display(), trouble.as_deref()));
        }
    }
    let began = Instant::now();
    let workers = start(args, &run, terminal.as_mut()).inspect_err(|_| {
        let _ = run.stop_within(args.grace);
    })?;
    let inbox = watch::Inbox::new(signals, &run, events, &workers)
        .map_err(|error| Failure::new("cannot watch the command", &error))
        .inspect_err(|_| {
            let _ = run.stop_within(Duration::ZERO);
        })?;
    let end = watch::Watch::new(&workers, inbox, terminal.as_mut(), args.grace, args.timeout).until_over();

    let report = match &end {
        watch::End::Natural { .. } => run.stop_within(args.grace),
        watch::End::Overdue { .. } => run.stop_within(Duration::ZERO),
    };
    let outcome = Outcome::new(&run, &workers, end, &report, began.elapsed(), terminal.as_ref());
    if let Some(terminal) = &mut terminal {
        terminal.come_home(outcome.was_signalled());
    }
    Ok(outcome)
}

fn config(args: &Args, terminal: Option<&Terminal>) -> Config {
    Config {
        containment: args.tier.into(),
        cleanup_on_stop_timeout_ms: u64::try_from(args.grace.as_millis()).unwrap_or(u64::MAX),
        state_dir: args.state_dir.clone(),
        session: if terminal.is_some() { Session::Caller } else { Session::Own },
        ..Config::default()
    }
}

fn start(args: &Args, run: &Run, mut terminal: Option<&mut Terminal>) -> Result<Vec<Worker>, Failure> {
    let mut workers = Vec::new();
    for _ in 0..args.copies.unwrap_or(1) {
        let mut command = Command::new(&args.command[0]).args(&args.command[1..]);
        if args.copies.is_some() {
            command = command.stdin(Stdio::Null);
        }
        if let Some(terminal) = terminal.as_deref_mut()
            && terminal.may_be_lent_at_start()
        {
            terminal.lent_by_custody();
            command = command.terminal(TerminalUse::Foreground);
        }
        workers.push(run.spawn(command).map_err(|error| cannot_run(&args.command[0], &error))?);
    }
    Ok(workers)
}

fn cannot_open(error: &OpenError) -> Failure {
    match error {
        OpenError::State(_) => crate::cannot_use_state(error),
        OpenError::Tier { .. } => {
            Failure::of(error).hint("leave --tier out for the one that works nearly everywhere")
        }
        _ => Failure::of(error).hint("`snakepit doctor` shows what works here"),
    }
}

fn cannot_run(program: &OsString, error: &SpawnError) -> Failure {
    match error {
        SpawnError::NotFound { .. } => {
            Failure::of(error).hint("check the spelling and PATH, or give the program's full path")
        }
        SpawnError::NotExecutable { .. } => {
            Failure::of(error).hint("it must be a program or a script with #!, and allowed to run (chmod +x)")
        }
        SpawnError::NoCurrentDir { .. } => Failure::of(error).hint("cd to a directory that exists"),
        _ => Failure::new(format!("cannot run {}", program.display()), error)
            .hint("`snakepit doctor` shows the limits of this machine"),
    }
    .status(error.shell_status())
}
