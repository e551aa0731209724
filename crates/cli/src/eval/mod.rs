//! `snakepit eval`: sends every sample of a data set to a worker's command, judges the answers, and reports how certain
//! the result is.
//!
//! Owns the command line. [`mod@run`] runs the evaluation and reports. [`text_report`] makes the tables. [`page`] makes
//! the page for a browser from the [`plot`]s and the [`failed_samples`], each with its [`word_diff`].

mod failed_samples;
mod page;
mod plot;
mod run;
mod stylesheet;
mod text_report;
mod word_diff;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;
use snakepit::evals::{Dataset, EvalError, EvalJournal, EvalPlan, Evaluator, Experiment};
use snakepit::{PoolOptions, custody};
use tokio::runtime::Builder;

use crate::shared::exit_status::{self, FAILED};
use crate::shared::failure::CliFailure;
use crate::shared::interrupts::{Interrupts, WatchedSources};
use crate::shared::options::{JsonOption, StateDirOption};
use crate::shared::target::{CallTarget, load_config};
use crate::shared::{duration, engine, worker_output};
use run::EvalRun;

/// Evaluate a worker's command on a data set and report with confidence intervals.
#[derive(clap::Args)]
#[command(
    after_help = HELP,
    override_usage = "snakepit eval DATASET.jsonl [-w WORKER | -c FILE] --command NAME [--evaluator HOW]... [--experiment NAME]... [OPTIONS]"
)]
pub(crate) struct EvalArgs {
    /// The samples, one JSON object per line: {"id": …, "input": …, "expected": …}.
    #[arg(value_name = "DATASET")]
    dataset: PathBuf,
    /// Evaluate this Python worker: a file (worker.py) or a module.
    #[arg(short, long, value_name = "WORKER", conflicts_with = "config")]
    worker: Option<PathBuf>,
    /// Read the pools from this configuration.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The command that answers.
    #[arg(long, value_name = "NAME")]
    command: String,
    /// Judge answers this way (by default exact). Repeatable: all evaluators must pass.
    #[arg(long, value_name = "HOW")]
    evaluator: Vec<String>,
    /// Run this experiment. Repeatable: each one is compared with the first.
    #[arg(long, value_name = "NAME")]
    experiment: Vec<String>,
    /// Continue an evaluation that ended early, or add experiments or samples to it.
    #[arg(long)]
    resume: bool,
    /// With --resume: ask samples again that ended in an error or a timeout.
    #[arg(long, requires = "resume")]
    retry_errors: bool,
    /// Write results to this file as they arrive (by default DATASET.eval.jsonl, beside the data set).
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Start N workers with -w (by default one per core).
    #[arg(long, value_name = "N", conflicts_with = "config", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// Ask N samples at the same time (by default one per worker).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// Let an answer take at most this long.
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    timeout: Option<Duration>,
    /// Use only the first N samples.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Write a report with plots, for a browser without a network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    output: JsonOption,
    /// Show on stderr what the workers print and log.
    #[arg(short = 'v', long)]
    logs: bool,
    #[command(flatten)]
    state: StateDirOption,
}

const HELP: &str = include_str!("help.txt");

/// Evaluates and returns the exit status.
pub(crate) fn run(args: &EvalArgs) -> Result<u8, CliFailure> {
    // The whole command line is checked before anything starts.
    let plan = plan(args)?;
    let mut target = target(args)?.judged_by(&plan)?;
    target.custody = args.state.apply(target.custody);
    let checkpoint = args.checkpoint.clone().unwrap_or_else(|| args.dataset.with_extension("eval.jsonl"));
    let opened = if args.resume {
        EvalJournal::resume(&checkpoint, &plan)
    } else {
        EvalJournal::create(&checkpoint, &plan)
    };
    let mut journal = opened.map_err(|error| refused(&error))?;
    if let Some(html) = &args.html {
        // It is better to fail now than after hours.
        page::probe(html)?;
    }
    let retried =
        if args.retry_errors { journal.retry_errors().map_err(|error| refused(&error))? } else { 0 };
    let interrupts = Interrupts::watch(WatchedSources::Signals)?;
    let display = worker_output::display(args.logs);
    let runtime = engine::runtime(Builder::new_multi_thread().worker_threads(1))?;
    let evaluation = EvalRun { args, target, plan, journal, retried, checkpoint, display, interrupts };
    runtime.block_on(evaluation.run())
}

fn plan(args: &EvalArgs) -> Result<EvalPlan, CliFailure> {
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
    let plan = EvalPlan::new(dataset, evaluator, experiments).map_err(|error| wrong(&error))?;
    Ok(match args.timeout {
        Some(timeout) => plan.timeout(timeout),
        None => plan,
    })
}

/// Parses `NAME`, `NAME=COMMAND` or `NAME={…}`.
fn experiment(text: &str, command: &str) -> Result<Experiment, CliFailure> {
    match text.split_once('=') {
        None => Ok(Experiment::new(text, command)),
        Some((name, rest)) if rest.trim_start().starts_with('{') => {
            let unclear = |error: &dyn std::error::Error| {
                CliFailure::new(format!("experiment {name}"), error).status(exit_status::USAGE).hint(
                    "write NAME={\"command\": …, \"arguments\": {…}, \"pool\": …}; all keys are optional",
                )
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

/// The pools that answer and judge.
pub(crate) struct EvalPools {
    pools: Vec<PoolOptions>,
    custody: custody::CustodyOptions,
    /// The number of samples to ask at the same time.
    width: usize,
}

impl EvalPools {
    /// Adds a pool for each file of evaluators. In every pool, a sample that kills its worker is a result and not a
    /// failure.
    fn judged_by(mut self, plan: &EvalPlan) -> Result<Self, CliFailure> {
        if let Some(file) = plan.evaluator().files().into_iter().find(|file| !file.is_file()) {
            return Err(CliFailure::usage(format!("there is no evaluator file {}", file.display()))
                .hint("write --evaluator python:FILE.py:FUNCTION with the path of a file"));
        }
        let judges = plan.evaluator().pools().into_iter().map(|pool| pool.workers(self.width));
        self.pools = self.pools.into_iter().map(PoolOptions::for_evaluation).chain(judges).collect();
        Ok(self)
    }
}

fn target(args: &EvalArgs) -> Result<EvalPools, CliFailure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(worker) = &args.worker {
        let width = args.workers.map_or(cores, usize::from);
        let CallTarget { pool, custody } = CallTarget::python(worker)?;
        return Ok(EvalPools { pools: vec![pool.workers(width)], custody, width });
    }
    let instead = "name a worker with -w worker.py or a configuration with -c FILE";
    let config = load_config(args.config.as_deref(), instead)?;
    Ok(EvalPools { pools: config.pools().to_vec(), custody: config.custody().clone(), width: cores })
}

/// Describes a command line that cannot be used, or a file that it names.
fn wrong(error: &EvalError) -> CliFailure {
    let failure = CliFailure::usage_of(error);
    match error {
        EvalError::Sample { .. } => {
            failure.hint("write one sample per line: {\"id\": \"a\", \"input\": …, \"expected\": …}")
        }
        _ => failure,
    }
}

/// Describes a checkpoint that cannot be used.
fn refused(error: &EvalError) -> CliFailure {
    let failure = CliFailure::of(error);
    match error {
        EvalError::Unfinished { .. } => {
            failure.status(FAILED).hint("--resume continues it; --checkpoint names another file")
        }
        EvalError::OtherCheckpoint { .. } | EvalError::OtherFormat { .. } => {
            failure.status(FAILED).hint("--checkpoint names another file")
        }
        EvalError::Corrupt { .. } => failure,
        _ => failure.hint("name another file with --checkpoint, in a directory that you may write to"),
    }
}
