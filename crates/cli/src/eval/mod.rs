//! `snakepit eval`: asks a worker's command every sample of a data set, judges the answers, and says how sure that is.
//!
//! Owns the command line, the order of things and the exit status. [`conduct`] runs the evaluation, [`show`] prints its table,
//! [`html`] writes the report that a browser shows, from the [`plot`]s and the answers that are [`mod@wrong`], each with its [`diff`].

mod conduct;
mod diff;
mod html;
mod plot;
mod show;
mod style;
mod wrong;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value as Json;
use snakepit::evals::{Dataset, EvalError, Evaluator, Experiment, Journal, Plan};
use snakepit::{Config, Pool, custody};

use crate::call::HOME;
use crate::call::logs;
use crate::call::outside::{Attention, Outside};
use crate::call::screen::Screen;
use crate::call::target::Target;
use crate::duration;
use crate::say::{self, Failure, USAGE};
use conduct::{Conductor, End, Finished};

/// Evaluate a worker's command on a data set, and report with confidence intervals.
#[derive(clap::Args)]
#[command(
    after_help = HELP,
    override_usage = "snakepit eval DATASET.jsonl [-w WORKER | -c FILE] --command NAME [--evaluator HOW]... [--experiment NAME]... [OPTIONS]"
)]
pub(crate) struct Args {
    /// The samples, one JSON object a line: {"id": …, "input": …, "expected": …}.
    #[arg(value_name = "DATASET")]
    dataset: PathBuf,
    /// A Python worker: its file (worker.py), or its module.
    #[arg(short, long, value_name = "WORKER", conflicts_with = "config")]
    worker: Option<PathBuf>,
    /// A configuration that says what the pools are.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The command that answers.
    #[arg(long, value_name = "NAME")]
    command: String,
    /// How answers are judged; exact unless this is said. Given several times, all must pass.
    #[arg(long, value_name = "HOW")]
    evaluator: Vec<String>,
    /// An experiment; given several times, each is compared with the first.
    #[arg(long, value_name = "NAME")]
    experiment: Vec<String>,
    /// Go on with an evaluation that was ended, or with more experiments or samples than it had.
    #[arg(long)]
    resume: bool,
    /// With --resume: ask again what ended in an error or a timeout.
    #[arg(long, requires = "resume")]
    retry_errors: bool,
    /// Where results are written as they come; beside the data set, as DATASET.eval.jsonl, unless this is said.
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// How many workers are started with -w; one per core unless this is said.
    #[arg(long, value_name = "N", conflicts_with = "config", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// How many samples are asked at the same time; one per worker unless this is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// How long one answer may take.
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    timeout: Option<Duration>,
    /// Only the first so many samples.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Write a report with plots, which a browser shows without a network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the report as one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Show on stderr what the workers print and log.
    #[arg(short = 'v', long)]
    logs: bool,
    /// Where the run is recorded.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

const HELP: &str = "\
Samples: an input that is an object is the command's arguments by name, any other is its one argument. A line may hold
anything else, too. A command that knows what its answer cost returns {\"output\": …, \"tokens\": {\"input\": 1, \"output\": 2}}.

Evaluators:
  exact             the answer is what is expected; 4 and 4.0 are the same
  contains          its text contains what is expected, or each of a list
  numeric           the same number; numeric:0.1 allows a difference, numeric:1% a relative one
  regex             its text matches the expected pattern; regex:PATTERN one pattern for all
  path:$.JSON.PATH  what the path finds in the answer is what is expected
  judge:COMMAND     a command of the worker gets input, output and expected, and answers with a bool or a score from 0 to 1
  python:FILE.py:FUNCTION  a function of another file, decorated with @snakepit.evaluator, gets what it takes of sample, input,
                    output and expected, and returns a bool, a score, or {\"score\": …, \"reason\": …}; python:FUNCTION: of the worker
  {\"all_of\": [\"exact\", {\"any_of\": [\"contains\", \"numeric:1%\"]}]}

Experiments:
  NAME              the same command, which sees the name in snakepit.context().metadata[\"experiment\"]
  NAME=COMMAND      another command
  NAME={\"command\": …, \"arguments\": {…}, \"pool\": …}   all of it optional; the arguments are added to those of each sample

Errors and timeouts are results: they have not passed, and their score is 0. Results are written as they come, so that an
evaluation that was killed goes on with --resume and comes to the same report. What has a result is not asked again, errors
and timeouts neither, unless --retry-errors says so. --resume may name more experiments than the first time, and a larger
--limit, not fewer. A sample that ends its worker is an error of that sample; the others are asked as if nothing had happened.

Exit status: 0 when every sample has a result, whatever it is;
  1    the evaluation could not go on, or an unfinished one is in the way
  2    this command line, the data set or the configuration cannot be used
  125  snakepit itself failed
  128+n when signal n ended it (130 for Ctrl-C); --resume goes on

Times are written as 3s, 500ms, 2m or a number of seconds.";

/// Evaluates, and gives back the exit status.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    // All that can be wrong with what was asked is said before anything is started.
    let plan = plan(args)?;
    let mut target = target(args)?;
    target.judged_by(&plan)?;
    if args.state_dir.is_some() {
        target.custody.state_dir.clone_from(&args.state_dir);
    }
    let checkpoint = args.checkpoint.clone().unwrap_or_else(|| args.dataset.with_extension("eval.jsonl"));
    let opened =
        if args.resume { Journal::resume(&checkpoint, &plan) } else { Journal::create(&checkpoint, &plan) };
    let mut journal = opened.map_err(|error| refused(&error))?;
    if let Some(html) = &args.html {
        // Better now than after hours.
        html::probe(html)?;
    }
    let voided =
        if args.retry_errors { journal.retry_errors().map_err(|error| refused(&error))? } else { 0 };
    let outside = Outside::watch(Attention::Signals)
        .map_err(|error| Failure::new("cannot listen to signals", &error))?;
    let screen = Screen::new();
    if args.logs {
        logs::show(&screen);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot start a runtime", &error))?;
    let conductor = Conductor {
        args,
        target,
        plan,
        journal,
        voided,
        checkpoint: &checkpoint,
        screen: screen.clone(),
        outside,
    };
    let end = runtime.block_on(conductor.conduct());
    drop(runtime);
    screen.clear();
    match end? {
        End::Finished(finished) => {
            tell(args, &finished, &checkpoint)?;
            Ok(0)
        }
        End::Interrupted(signal) => Ok(128 + signal as u8),
    }
}

fn tell(args: &Args, finished: &Finished, checkpoint: &Path) -> Result<(), Failure> {
    let report = &finished.report;
    if let Some(file) = &args.html {
        let page = html::page(&args.dataset, report, &wrong::Answers::of(&finished.plan, &finished.journal));
        html::write(file, &page)?;
    }
    if args.json {
        say::out(&say::json(report));
    } else {
        say::out(&show::report(report));
        let mut places = format!("results: {}", checkpoint.display());
        if let Some(file) = &args.html {
            places = format!("{places}\nreport: {}", file.display());
        }
        say::err(&format!("{places}\n"));
    }
    Ok(())
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    let mut dataset = Dataset::read(&args.dataset).map_err(|error| wrong(&error))?;
    if let Some(limit) = args.limit {
        dataset = dataset.first(limit as usize);
    }
    let evaluators: Result<Vec<Evaluator>, EvalError> =
        args.evaluator.iter().map(|text| Evaluator::parse(text)).collect();
    let evaluator = match evaluators.map_err(|error| wrong(&error))? {
        none if none.is_empty() => Evaluator::Exact,
        mut one if one.len() == 1 => one.remove(0),
        all => Evaluator::AllOf(all),
    };
    let mut experiments = Vec::new();
    for text in &args.experiment {
        experiments.push(experiment(text, &args.command)?);
    }
    if experiments.is_empty() {
        experiments.push(Experiment::new(&args.command, &args.command));
    }
    let plan = Plan::new(dataset, evaluator, experiments).map_err(|error| wrong(&error))?;
    Ok(match args.timeout {
        Some(timeout) => plan.timeout(timeout),
        None => plan,
    })
}

/// `NAME`, `NAME=COMMAND` or `NAME={…}`.
fn experiment(text: &str, command: &str) -> Result<Experiment, Failure> {
    match text.split_once('=') {
        None => Ok(Experiment::new(text, command)),
        Some((name, rest)) if rest.trim_start().starts_with('{') => {
            let unclear = |error: &dyn std::error::Error| {
                Failure::new(format!("experiment {name}"), error)
                    .status(USAGE)
                    .hint("write NAME={\"command\": …, \"arguments\": {…}, \"pool\": …}, all of it optional")
            };
            let mut described: Json = serde_json::from_str(rest).map_err(|error| unclear(&error))?;
            if let Some(object) = described.as_object_mut() {
                object.entry("command").or_insert_with(|| command.into());
                object.insert("name".into(), name.into());
            }
            serde_json::from_value(described).map_err(|error| unclear(&error))
        }
        Some((name, command)) => Ok(Experiment::new(name, command)),
    }
}

/// Whom the samples are put to.
pub(crate) struct Asked {
    pools: Vec<Pool>,
    custody: custody::Config,
    /// How many samples can be asked at the same time.
    width: usize,
}

impl Asked {
    /// Whatever samples do to workers is their result, of all pools; and the files of evaluators get pools of their own.
    fn judged_by(&mut self, plan: &Plan) -> Result<(), Failure> {
        for file in plan.evaluator().files() {
            if !file.is_file() {
                return Err(Failure::plain(format!("there is no evaluator file {}", file.display()))
                    .status(USAGE)
                    .hint("--evaluator python:FILE.py:FUNCTION names a file, from here or from the root"));
            }
        }
        let judges = plan.evaluator().pools().into_iter().map(|pool| pool.workers(self.width));
        let asked = std::mem::take(&mut self.pools).into_iter().map(Pool::for_evaluation);
        self.pools = asked.chain(judges).collect();
        Ok(())
    }
}

fn target(args: &Args) -> Result<Asked, Failure> {
    let config = match (&args.worker, &args.config) {
        (Some(worker), _) => {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            let width = args.workers.map_or(cores, usize::from);
            let Target { pool, custody } = Target::worker(worker)?;
            return Ok(Asked { pools: vec![pool.workers(width)], custody, width });
        }
        (None, Some(config)) => config.as_path(),
        (None, None) if Path::new(HOME).exists() => Path::new(HOME),
        (None, None) => {
            return Err(Failure::plain(format!("there is no {HOME} here, and no worker is named"))
                .status(USAGE)
                .hint("name a worker with -w worker.py or a configuration with -c FILE"));
        }
    };
    let config = Config::load(config).map_err(|error| Failure::of(&error).status(USAGE))?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(Asked { pools: config.pools().to_vec(), custody: config.custody().clone(), width: cores })
}

/// The command line or a file that it names cannot be used.
fn wrong(error: &EvalError) -> Failure {
    let failure = Failure::of(error).status(USAGE);
    match error {
        EvalError::Sample { .. } | EvalError::Empty => {
            failure.hint("a sample is one line: {\"id\": \"a\", \"input\": …, \"expected\": …}")
        }
        _ => failure,
    }
}

/// The checkpoint cannot be used.
fn refused(error: &EvalError) -> Failure {
    let failure = Failure::of(error);
    match error {
        EvalError::Unfinished { .. } => failure.status(1).hint(
            "--resume goes on with it; remove the file, or name another with --checkpoint, to begin anew",
        ),
        EvalError::OtherCheckpoint { .. } => {
            failure.status(1).hint("name another file with --checkpoint, or remove this one")
        }
        EvalError::Corrupt { .. } => {
            failure.hint("remove the line to ask its sample again, or the file to begin anew")
        }
        _ => failure,
    }
}
