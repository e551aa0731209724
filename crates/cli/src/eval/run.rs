//! Runs one evaluation from the start of its workers to its report. Answers signals in every phase.

use std::path::PathBuf;
use std::pin::pin;

use nix::sys::signal::Signal;
use snakepit::call::RemoteErrorKind;
use snakepit::evals::{EvalError, EvalJournal, EvalPlan, EvalProgress, EvalReport, Evaluation};
use snakepit::{Builder, Snakepit};

use super::failed_samples::FailedSamples;
use super::{EvalArgs, EvalPools, page, text_report};
use crate::shared::exit_status::{self, FAILED, INTERNAL, SUCCESS};
use crate::shared::failure::CliFailure;
use crate::shared::interrupts::Interrupts;
use crate::shared::output::display::{BarLine, ProgressDisplay};
use crate::shared::{engine, output};

pub(super) struct EvalRun<'a> {
    pub(super) args: &'a EvalArgs,
    pub(super) target: EvalPools,
    pub(super) plan: EvalPlan,
    pub(super) journal: EvalJournal,
    /// The number of errors and timeouts that are asked again.
    pub(super) retried: usize,
    pub(super) checkpoint: PathBuf,
    pub(super) display: ProgressDisplay,
    pub(super) interrupts: Interrupts,
}

impl EvalRun<'_> {
    /// Evaluates, prints the report, and returns the exit status.
    pub(super) async fn run(mut self) -> Result<u8, CliFailure> {
        self.show_resumed();
        // A complete evaluation needs no workers.
        let report = if self.done() == self.plan.size() {
            EvalReport::of(&self.plan, &self.journal)
        } else {
            match self.ask_all().await? {
                Ok(report) => report,
                Err(signal) => return Ok(exit_status::of_signal(signal)),
            }
        };
        self.display.clear();
        self.print(&report)?;
        Ok(SUCCESS)
    }

    /// Runs until every sample has a result or a signal ends the evaluation.
    async fn ask_all(&mut self) -> Result<Result<EvalReport, Signal>, CliFailure> {
        let logging = engine::logging(self.args.logs);
        let builder = Snakepit::builder().custody(self.target.custody.clone()).logging(logging);
        let builder = std::mem::take(&mut self.target.pools).into_iter().fold(builder, Builder::pool);
        // An early return drops the start. The end of the runtime waits for it.
        let pit = tokio::select! {
            signal = self.interrupts.signal() => return Ok(Err(self.interrupted(signal))),
            started = pin!(builder.start()) => started.map_err(|error| CliFailure::of(&error).status(FAILED))?,
        };
        let width = self.args.concurrency.map_or(self.target.width, usize::from);
        let evaluation = Evaluation::new(self.plan.clone()).concurrency(width);
        let display = self.display.clone();
        let ended = tokio::select! {
            signal = self.interrupts.signal() => Ok(Err(self.interrupted(signal))),
            report = evaluation.run(&pit, &mut self.journal, |progress| show_progress(&display, progress)) => report.map(Ok),
        };
        engine::stop(&pit, &mut self.interrupts).await;
        self.display.clear();
        ended.map_err(|error| self.failure(&error))
    }

    fn print(&self, report: &EvalReport) -> Result<(), CliFailure> {
        let html = self.args.html.as_deref();
        if let Some(file) = html {
            let failed = FailedSamples::of(&self.plan, &self.journal);
            page::write(file, &page::page(&self.args.dataset, report, &failed))?;
        }
        self.args.output.print(report, || text_report::report(report));
        if !self.args.output.json {
            let html = html.map_or_else(String::new, |file| format!("report: {}\n", file.display()));
            output::err(&format!("results: {}\n{html}", self.checkpoint.display()));
        }
        Ok(())
    }

    fn done(&self) -> usize {
        EvalProgress::of(&self.plan, &self.journal).done
    }

    fn interrupted(&self, signal: Signal) -> Signal {
        self.display.line(&format!("snakepit: interrupted: {}", self.results_so_far()));
        signal
    }

    fn results_so_far(&self) -> String {
        let (done, all, file) = (self.done(), self.plan.size(), self.checkpoint.display());
        format!("{done} of {all} results are in {file}; continue with --resume")
    }

    fn failure(&self, error: &EvalError) -> CliFailure {
        let status = if matches!(error, EvalError::Call { .. }) { FAILED } else { INTERNAL };
        let failure = CliFailure::of(error).status(status);
        if self.done() > 0 {
            failure.hint(self.results_so_far())
        } else if self.lacks_evaluator(error) {
            failure.hint(
                "python:… names a function that @snakepit.evaluator decorates, judge:… one of @snakepit.command",
            )
        } else {
            failure
        }
    }

    /// Reports whether the unknown command may be an evaluator.
    fn lacks_evaluator(&self, error: &EvalError) -> bool {
        let EvalError::Call { source, .. } = error else { return false };
        let is_unknown = source.remote().is_some_and(|error| error.kind == RemoteErrorKind::UnknownCommand);
        is_unknown && self.plan.evaluator().asks_a_pool()
    }

    /// Prints how many results exist already, to make clear that this is a resumed evaluation.
    fn show_resumed(&self) {
        let found = self.journal.found();
        if found.records == 0 {
            return;
        }
        let torn = if found.torn > 0 { "; one more was cut off, and is asked again" } else { "" };
        let retried = match self.retried {
            0 => String::new(),
            1 => "; one of them has no score, and is asked again".to_owned(),
            some => format!("; {some} of them have no score, and are asked again"),
        };
        let (records, all) = (found.records, self.plan.size());
        self.display.line(&format!("snakepit: {records} of {all} results exist already{torn}{retried}"));
    }
}

fn show_progress(display: &ProgressDisplay, progress: &EvalProgress) {
    let mut text = format!("{} passed", progress.passed);
    for (number, name) in [(progress.errors, "error"), (progress.timeouts, "timeout")] {
        if number > 0 {
            let plural = if number == 1 { "" } else { "s" };
            text = format!("{text}, {number} {name}{plural}");
        }
    }
    display.bar(&BarLine {
        template: "{percent:>3} %  {bar:24} {pos}/{len}  {wide_msg}",
        done: progress.done as u64,
        of: progress.all as u64,
        text: &text,
    });
}
