//! One call: starts the worker, makes the call, prints the values, and stops the worker.
//!
//! Every phase also waits for interrupts, so a signal is answered at any time.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::poll_fn;
use snakepit::call::CallStream;
use snakepit::value::Map;
use snakepit::{CallError, EngineError, Snakepit, StartError, Value};
use tokio::time::Instant;

use super::CallArgs;
use super::failure::{not_called, of_call, of_format, of_output, of_start};
use super::result_format::ResultFormat;
use super::result_writer::ResultWriter;
use crate::shared::engine;
use crate::shared::exit_status::SUCCESS;
use crate::shared::failure::{CliFailure, FailureFormat, chain};
use crate::shared::interrupts::{Interrupt, Interrupts};
use crate::shared::output::display::ProgressDisplay;
use crate::shared::target::CallTarget;

/// The time beyond `--timeout` in which a failed start can explain itself. What the worker printed says more than
/// "timeout".
const START_GRACE: Duration = Duration::from_secs(1);

pub(super) struct CallRun<'a> {
    pub(super) args: &'a CallArgs,
    pub(super) target: CallTarget,
    pub(super) arguments: Map,
    pub(super) format: ResultFormat,
    pub(super) display: ProgressDisplay,
    pub(super) interrupts: Interrupts,
}

/// The reason why no further value is printed.
enum CallStop {
    Interrupted(Interrupt),
    WriterEnded,
    Failed(CliFailure),
}

impl CallRun<'_> {
    /// Makes the call and returns the exit status.
    pub(super) async fn run(mut self) -> u8 {
        let deadline = self.args.timeout.map(|timeout| Instant::now() + timeout);
        let pit = match self.start(deadline).await {
            Ok(pit) => pit,
            Err(status) => return status,
        };
        let status = self.call(&pit, deadline).await;
        engine::stop(&pit, &mut self.interrupts).await;
        status
    }

    async fn start(&mut self, deadline: Option<Instant>) -> Result<Snakepit, u8> {
        let CallTarget { pool, custody } = &self.target;
        // The library's log is shown only with `-v`.
        let logging = engine::logging(self.args.logs);
        let pool = match self.args.timeout {
            Some(timeout) => pool.clone().worker_start_timeout_at_most(timeout),
            None => pool.clone(),
        };
        let start = pin!(Snakepit::builder().custody(custody.clone()).logging(logging).pool(pool).start());
        // An early return drops the start. The end of the runtime waits for it.
        let started = tokio::select! {
            interrupt = self.interrupts.next() => return Err(interrupt.status()),
            started = within(deadline.map(|deadline| deadline + START_GRACE), start) => started,
        };
        let command = &self.args.command;
        let failure = match (started, self.args.timeout) {
            (Some(Ok(pit)), _) => return Ok(pit),
            (Some(Err(error)), Some(_)) if is_late(&error) => not_called(command, &chain(&error), ""),
            (Some(Err(error)), _) => of_start(&error),
            (None, after) => not_called(
                command,
                &format!("its worker was not ready within {:?}", after.unwrap_or_default()),
                "; -v shows what the worker prints",
            ),
        };
        Err(self.report(&failure))
    }

    async fn call(&mut self, pit: &Snakepit, deadline: Option<Instant>) -> u8 {
        let writer = match ResultWriter::start() {
            Ok(writer) => writer,
            Err(error) => return self.report(&of_output(&error)),
        };
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let ended = if self.args.stream {
            self.stream(pit, left, &writer).await
        } else {
            self.one(pit, left, &writer).await
        };
        let failure = match ended {
            Ok(()) | Err(CallStop::WriterEnded) => None,
            Err(CallStop::Failed(failure)) => Some(failure),
            Err(CallStop::Interrupted(interrupt)) => return interrupt.status(),
        };
        // Values that came before an error are printed before the error.
        let written = tokio::select! {
            interrupt = self.interrupts.next() => return interrupt.status(),
            written = writer.finish() => written,
        };
        match (written, failure) {
            (Ok(()), None) => SUCCESS,
            (Ok(()), Some(failure)) => self.report(&failure),
            // The reader of the result has gone.
            (Err(error), _) if error.kind() == std::io::ErrorKind::BrokenPipe => SUCCESS,
            (Err(error), _) => self.report(&of_output(&error)),
        }
    }

    /// Reports a failure at once, because stopping the worker may take a moment.
    fn report(&self, failure: &CliFailure) -> u8 {
        self.display.finish();
        failure.report(FailureFormat::of_option(self.args.json))
    }

    async fn one(
        &mut self,
        pit: &Snakepit,
        left: Option<Duration>,
        writer: &ResultWriter,
    ) -> Result<(), CallStop> {
        let display = self.display.clone();
        let mut call = pit
            .call::<Value>(&self.args.command, Value::Map(std::mem::take(&mut self.arguments)))
            .on_progress(move |progress| display.progress(&progress));
        if let Some(session) = &self.args.session {
            call = call.session(session.as_str());
        }
        if let Some(left) = left {
            call = call.timeout(left);
        }
        let value = tokio::select! {
            interrupt = self.interrupts.next() => return Err(CallStop::Interrupted(interrupt)),
            value = call.into_future() => value.map_err(|error| self.failed(pit, error))?,
        };
        self.print(&value, writer).await
    }

    async fn stream(
        &mut self,
        pit: &Snakepit,
        left: Option<Duration>,
        writer: &ResultWriter,
    ) -> Result<(), CallStop> {
        let arguments = Value::Map(std::mem::take(&mut self.arguments));
        let mut stream = pit.stream::<Value>(&self.args.command, arguments);
        if let Some(session) = &self.args.session {
            stream = stream.session(session.as_str());
        }
        if let Some(left) = left {
            stream = stream.timeout(left);
        }
        let mut stream = stream.open().map_err(|error| self.failed(pit, error))?;
        loop {
            let item = tokio::select! {
                interrupt = self.interrupts.next() => return Err(CallStop::Interrupted(interrupt)),
                item = next(&mut stream, &self.display) => item,
            };
            let Some(value) = item else { return Ok(()) };
            self.print(&value.map_err(|error| self.failed(pit, error))?, writer).await?;
        }
    }

    async fn print(&mut self, value: &Value, writer: &ResultWriter) -> Result<(), CallStop> {
        let bytes = self.format.render(value);
        let bytes = bytes.map_err(|error| CallStop::Failed(of_format(&self.args.command, &error)))?;
        if self.args.stream {
            self.display.clear();
        } else {
            self.display.finish();
        }
        tokio::select! {
            interrupt = self.interrupts.next() => Err(CallStop::Interrupted(interrupt)),
            taken = writer.write(bytes) => if taken { Ok(()) } else { Err(CallStop::WriterEnded) },
        }
    }

    fn failed(&self, pit: &Snakepit, mut error: CallError) -> CallStop {
        // The user knows `--timeout`, but not how much of it was left when the worker was ready.
        if let (CallError::Timeout { after, .. }, Some(timeout)) = (&mut error, self.args.timeout) {
            *after = timeout;
        }
        let commands: Vec<String> = pit.pools().iter().flat_map(snakepit::Pool::commands).collect();
        CallStop::Failed(of_call(&self.args.command, &error, &commands))
    }
}

async fn within<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

/// Returns the next item of a stream. Meanwhile shows the progress that arrives.
async fn next(stream: &mut CallStream<Value>, display: &ProgressDisplay) -> Option<Result<Value, CallError>> {
    poll_fn(|context| {
        let item = stream.poll_next_unpin(context);
        if let (Poll::Pending, Some(progress)) = (&item, stream.take_progress()) {
            display.progress(&progress);
        }
        item
    })
    .await
}

fn is_late(error: &EngineError) -> bool {
    matches!(error, EngineError::Start { source: StartError::Timeout { .. }, .. })
}
