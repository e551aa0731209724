//! One evaluation from the start of its workers to their end, with signals heard in every phase.
#![expect(clippy::cast_precision_loss, reason = "a bar is not that precise")]

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use nix::sys::signal::Signal;
use snakepit::evals::{EvalError, Evaluation, Journal, Plan, Progress, Report};
use snakepit::{Logging, Snakepit};

use super::{Args, Asked};
use crate::call::outside::{Happening, Outside};
use crate::call::screen::Screen;
use crate::say::{self, Failure};

/// What is under way was cancelled already: this only bounds a mistake.
const STOP_GRACE: Duration = Duration::from_mins(1);

/// How many letters the bar has.
const BAR: usize = 24;

pub(super) enum End {
    Finished(Box<Finished>),
    Interrupted(Signal),
}

/// An evaluation that has come to its report, and what it comes from.
pub(super) struct Finished {
    pub(super) report: Report,
    pub(super) plan: Plan,
    pub(super) journal: Journal,
}

pub(super) struct Conductor<'a> {
    pub(super) args: &'a Args,
    pub(super) target: Asked,
    pub(super) plan: Plan,
    pub(super) journal: Journal,
    /// How many errors and timeouts are asked again.
    pub(super) voided: usize,
    pub(super) checkpoint: &'a Path,
    pub(super) screen: Screen,
    pub(super) outside: Outside,
}

impl Conductor<'_> {
    pub(super) async fn conduct(mut self) -> Result<End, Failure> {
        self.tell_found();
        // What is complete needs no workers.
        if Progress::of(&self.plan, &self.journal).done == self.plan.size() {
            let report = Report::of(&self.plan, &self.journal);
            return Ok(self.finished(report));
        }
        let mut builder = Snakepit::builder()
            .custody(self.target.custody.clone())
            .logging(Logging::default().log_python_output(self.args.logs));
        for pool in std::mem::take(&mut self.target.pools) {
            builder = builder.pool(pool);
        }
        // Whoever gives up here drops what was begun, and the end of the runtime waits for it.
        let pit = tokio::select! {
            signal = signal(&mut self.outside) => {
                self.tell_interrupted();
                return Ok(End::Interrupted(signal));
            }
            started = pin!(builder.start()) => started.map_err(|error| Failure::of(&error).status(1))?,
        };
        let ended = self.evaluate(&pit).await;
        stop(&pit, &mut self.outside).await;
        match ended? {
            Ok(report) => Ok(self.finished(report)),
            Err(signal) => Ok(End::Interrupted(signal)),
        }
    }

    fn finished(self, report: Report) -> End {
        End::Finished(Box::new(Finished { report, plan: self.plan, journal: self.journal }))
    }

    /// Until every sample has a result, or a signal ends it.
    async fn evaluate(&mut self, pit: &Snakepit) -> Result<Result<Report, Signal>, Failure> {
        let width = self.args.concurrency.map_or(self.target.width, usize::from);
        let evaluation = Evaluation::new(self.plan.clone()).concurrency(width);
        let screen = self.screen.clone();
        let ended = {
            let run = evaluation.run(pit, &mut self.journal, |progress| screen.progress(&shown(progress)));
            tokio::select! {
                signal = signal(&mut self.outside) => Err(signal),
                report = run => Ok(report),
            }
        };
        match ended {
            Err(signal) => {
                self.tell_interrupted();
                Ok(Err(signal))
            }
            Ok(Ok(report)) => Ok(Ok(report)),
            Ok(Err(error)) => {
                self.screen.clear();
                let done = Progress::of(&self.plan, &self.journal).done;
                let (all, file) = (self.plan.size(), self.checkpoint.display());
                let status = if matches!(error, EvalError::Call { .. }) { 1 } else { say::OURS };
                let failure = Failure::of(&error).status(status);
                Err(match done {
                    0 if self.lacks_a_judge(&error) => failure.hint(
                        "python:… names a function that @snakepit.evaluator decorates, judge:… one of @snakepit.command",
                    ),
                    0 => failure,
                    done => failure.hint(format!("{done} of {all} results are in {file}; --resume goes on")),
                })
            }
        }
    }

    /// Whether it may be the evaluator that is no command.
    fn lacks_a_judge(&self, error: &EvalError) -> bool {
        let EvalError::Call { source, .. } = error else { return false };
        let is_unknown = source.remote().is_some_and(|error| error.kind == "unknown_command");
        is_unknown && self.plan.evaluator().asks_a_pool()
    }

    /// What was found is said, so that nobody takes a resumed evaluation for a new one.
    fn tell_found(&self) {
        let found = self.journal.found();
        if found.records > 0 {
            let mut line =
                format!("snakepit: {} of {} results are there already", found.records, self.plan.size());
            if found.torn > 0 {
                line.push_str("; one more was cut off, and is asked again");
            }
            line = match self.voided {
                0 => line,
                1 => format!("{line}; one of them has no score, and is asked again"),
                some => format!("{line}; {some} of them have no score, and are asked again"),
            };
            self.screen.line(&line);
        }
    }

    fn tell_interrupted(&self) {
        let done = Progress::of(&self.plan, &self.journal).done;
        let (all, file) = (self.plan.size(), self.checkpoint.display());
        self.screen
            .line(&format!("snakepit: interrupted: {done} of {all} results are in {file}; --resume goes on"));
    }
}

async fn signal(outside: &mut Outside) -> Signal {
    loop {
        if let Happening::Signal(signal) = outside.next().await {
            return signal;
        }
    }
}

/// Ends the workers; a signal meanwhile kills them at once.
async fn stop(pit: &Snakepit, outside: &mut Outside) {
    let mut stop = pin!(pit.stop_within(STOP_GRACE));
    loop {
        tokio::select! {
            () = &mut stop => return,
            _ = signal(outside) => if let Some(run) = pit.run() {
                let run = run.clone();
                let _ = tokio::task::spawn_blocking(move || run.stop_within(Duration::ZERO)).await;
            },
        }
    }
}

fn shown(progress: &Progress) -> snakepit::Progress {
    let fraction = if progress.all == 0 { 1.0 } else { progress.done as f64 / progress.all as f64 };
    let full = (fraction * BAR as f64) as usize;
    let mut text = format!(
        "{}{} {}/{}  {} passed",
        "█".repeat(full),
        "░".repeat(BAR - full.min(BAR)),
        progress.done,
        progress.all,
        progress.passed
    );
    for (number, name) in [(progress.errors, "error"), (progress.timeouts, "timeout")] {
        if number > 0 {
            let many = if number == 1 { "" } else { "s" };
            text = format!("{text}, {number} {name}{many}");
        }
    }
    snakepit::Progress { fraction: Some(fraction), text: Some(text) }
}
