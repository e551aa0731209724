//! `snakepit exec`: runs any command in custody and ends as the command ended.
//!
//! Owns the command line. [`job_signals`] reads signals and stops the process as a job, [`terminal`] lends the
//! terminal, [`watch`] decides while the command runs, and [`report`] turns its end into an exit status.

mod job_signals;
mod orphans;
mod report;
mod terminal;
mod watch;

use std::ffi::OsString;
use std::time::{Duration, Instant};

use snakepit::custody::{
    Command, Containment, CustodyEvent, CustodyEvents, CustodyOptions, OpenError, Run, Session, SpawnError,
    Stdio, TerminalUse, WorkerProcess,
};

use crate::shared::duration;
use crate::shared::failure::{CliFailure, FailureFormat};
use crate::shared::options::StateDirOption;
use crate::shared::output;
use job_signals::JobSignals;
use report::ExecReport;
pub(crate) use report::SurvivorReport;
use terminal::ControllingTerminal;

/// Run a command so that nothing it starts outlives it, however it ends.
///
/// The command inherits standard input, output and error. INT, QUIT, WINCH, USR1 and USR2 are forwarded to it. The first TERM
/// or HUP is forwarded too and starts --grace, after which everything is killed. When snakepit itself is killed, the command
/// and all that it started die within milliseconds.
#[derive(clap::Args)]
#[command(after_help = EXIT_HELP, override_usage = "snakepit exec [OPTIONS] -- CMD [ARGS]...")]
pub(crate) struct ExecArgs {
    /// Contain the command by a PID namespace, by a subreaper (shim; auto means the same), or by a process group only.
    #[arg(long, value_enum, default_value_t = TierChoice::Auto)]
    tier: TierChoice,
    /// Wait this long between TERM and KILL.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration::parse)]
    grace: Duration,
    /// Start N copies with /dev/null as input, and wait for all of them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_COPIES))]
    copies: Option<u16>,
    #[command(flatten)]
    state: StateDirOption,
    /// End the command after this time (TERM, --grace, KILL) with status 124.
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    timeout: Option<Duration>,
    /// At the end, print one line of JSON on stderr: run, tier, status, and how every copy ended.
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
With --copies, it is the first status, by index, that is not zero.

Write times as 3s, 500ms, 2m or a number of seconds.";

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

/// Runs the command and returns the exit status.
pub(crate) fn run(args: &ExecArgs) -> u8 {
    match in_custody(args) {
        Ok(report) => report.conclude(args.json),
        Err(failure) => {
            let text = failure.text().into();
            failure.json(text).report(FailureFormat::of_option(args.json))
        }
    }
}

fn in_custody(args: &ExecArgs) -> Result<ExecReport, CliFailure> {
    let [stdin_was_closed, _, _] = snakepit::custody::startup::closed_stdio();
    if args.copies.is_none() && stdin_was_closed {
        return Err(CliFailure::internal("standard input is closed, so the command cannot inherit it")
            .hint("run it with </dev/null if it needs no input"));
    }
    let signals = JobSignals::take().map_err(|error| CliFailure::new("cannot listen for signals", &error))?;
    // Declared before the run: on every path, the terminal comes back after everything has ended.
    let mut terminal = if args.copies.is_none() { ControllingTerminal::find() } else { None };

    let run = Run::open(config(args, terminal.as_ref())).map_err(|error| cannot_open(&error))?;
    let events = run.events();
    for event in events.iter().flat_map(CustodyEvents::drain) {
        if let CustodyEvent::FileDamaged { path, trouble } = event {
            output::err(&format!("{}\n", output::damaged_file(&path.display(), trouble.as_deref())));
        }
    }
    let began = Instant::now();
    let workers = start(args, &run, terminal.as_mut()).inspect_err(|_| {
        let _ = run.stop_within(args.grace);
    })?;
    let source = watch::EventSource::new(signals, &run, events, &workers)
        .map_err(|error| CliFailure::new("cannot watch the command", &error))
        .inspect_err(|_| {
            let _ = run.stop_within(Duration::ZERO);
        })?;
    let end =
        watch::CommandWatch::new(&workers, source, terminal.as_mut(), args.grace, args.timeout).until_over();

    let stopped = match &end {
        watch::WatchEnd::Natural { .. } => run.stop_within(args.grace),
        watch::WatchEnd::Overdue { .. } => run.stop_within(Duration::ZERO),
    };
    let outcome = ExecReport::new(&run, &workers, end, &stopped, began.elapsed(), terminal.as_ref());
    if let Some(terminal) = &mut terminal {
        terminal.restore(outcome.command_end());
    }
    Ok(outcome)
}

fn config(args: &ExecArgs, terminal: Option<&ControllingTerminal>) -> CustodyOptions {
    args.state.apply(
        CustodyOptions::default()
            .containment(args.tier.into())
            .cleanup_on_stop_timeout_ms(u64::try_from(args.grace.as_millis()).unwrap_or(u64::MAX))
            .session(if terminal.is_some() { Session::Caller } else { Session::Own }),
    )
}

fn start(
    args: &ExecArgs,
    run: &Run,
    mut terminal: Option<&mut ControllingTerminal>,
) -> Result<Vec<WorkerProcess>, CliFailure> {
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

fn cannot_open(error: &OpenError) -> CliFailure {
    match error {
        OpenError::State(_) => CliFailure::state(error),
        OpenError::Tier { .. } => {
            CliFailure::of(error).hint("omit --tier to use the one that works nearly everywhere")
        }
        _ => CliFailure::of(error).hint("`snakepit doctor` shows what works on this machine"),
    }
}

fn cannot_run(program: &OsString, error: &SpawnError) -> CliFailure {
    match error {
        SpawnError::NotFound { .. } => {
            CliFailure::of(error).hint("check the spelling and PATH, or give the program's full path")
        }
        SpawnError::NotExecutable { .. } => CliFailure::of(error)
            .hint("it must be a program, or a script that begins with #!, and be executable (chmod +x)"),
        SpawnError::NoCurrentDir { .. } => {
            CliFailure::internal("the current directory is gone").hint("cd to a directory that exists")
        }
        SpawnError::Process { .. } => CliFailure::new(format!("cannot run {}", program.display()), error),
        _ => CliFailure::new(format!("cannot run {}", program.display()), error)
            .hint("`snakepit doctor` shows the limits of this machine"),
    }
    .status(error.shell_status())
}
