//! One call from its start to its end: the worker gets ready, the call is made, its values are printed, all is stopped.
//!
//! Everything waits in one place for what comes from outside as well, so that a signal is answered in every phase.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::poll_fn;
use nix::sys::signal::Signal;
use snakepit::value::Map;
use snakepit::{CallError, CallStream, EngineError, Logging, Snakepit, StartError, Value};
use tokio::time::Instant;

use super::form::Form;
use super::outside::{Happening, Outside};
use super::printer::Printer;
use super::screen::Screen;
use super::target::Target;
use super::trouble::Trouble;
use super::{Args, tell};

/// How it ended.
pub(super) enum End {
    Answered,
    /// Nobody reads the answer any more.
    Unread,
    Interrupted(Signal),
    /// It failed, which was told, with this exit status.
    Told(u8),
}

/// What is under way ends by itself, by its own deadline or by the stages of its cancel: this only bounds a mistake.
const STOP_GRACE: Duration = Duration::from_mins(1);

/// How much longer than `--timeout` the start may take to tell why: what the worker has printed says more than the clock.
const START_GRACE: Duration = Duration::from_secs(1);

pub(super) struct Conductor<'a> {
    pub(super) args: &'a Args,
    pub(super) target: Target,
    pub(super) arguments: Map,
    pub(super) form: Form,
    pub(super) screen: Screen,
    pub(super) outside: Outside,
}

impl Conductor<'_> {
    pub(super) async fn conduct(mut self) -> End {
        let deadline = self.args.timeout.map(|timeout| Instant::now() + timeout);
        let pit = match self.start(deadline).await {
            Ok(pit) => pit,
            Err(end) => return end,
        };
        let end = self.call(&pit, deadline).await;
        self.stop(&pit).await;
        end
    }

    async fn start(&mut self, deadline: Option<Instant>) -> Result<Snakepit, End> {
        let Target { pool, custody } = &self.target;
        // Only `-v` looks at what the library says.
        let logging = Logging::default().log_python_output(self.args.logs);
        let pool = match self.args.timeout {
            Some(timeout) => pool.clone().worker_start_timeout_at_most(timeout),
            None => pool.clone(),
        };
        let builder = Snakepit::builder().custody(custody.clone()).logging(logging).pool(pool);
        let start = pin!(builder.start());
        // Whoever gives up here drops what was begun, and the end of the runtime waits for it.
        let started = tokio::select! {
            happening = self.outside.next() => return Err(happening.into()),
            started = within(deadline.map(|deadline| deadline + START_GRACE), start) => started,
        };
        let trouble = match &started {
            Some(Ok(pit)) => return Ok(pit.clone()),
            Some(Err(error)) if is_late(error) && self.args.timeout.is_some() => {
                Trouble::LateWorker { command: &self.args.command, error }
            }
            Some(Err(error)) => Trouble::Start(error),
            None => Trouble::StartTimeout {
                command: &self.args.command,
                after: self.args.timeout.unwrap_or_default(),
            },
        };
        Err(tell(self.args, &self.screen, &trouble))
    }

    async fn call(&mut self, pit: &Snakepit, deadline: Option<Instant>) -> End {
        let printer = match Printer::start() {
            Ok(printer) => printer,
            Err(error) => return tell(self.args, &self.screen, &Trouble::Print(&error)),
        };
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let arguments = Value::Map(std::mem::take(&mut self.arguments));
        let ended = if self.args.stream {
            self.stream(pit, arguments, left, &printer).await
        } else {
            self.one(pit, arguments, left, &printer).await
        };
        match ended {
            Ok(()) | Err(Early::Unprintable) => self.finish(printer).await,
            Err(Early::Outside(happening)) => happening.into(),
            Err(Early::Failed(error)) => {
                // What came before the error is printed before it is told.
                let end = self.finish(printer).await;
                let command = self.args.command.as_str();
                let commands = pit.pools().iter().flat_map(snakepit::PoolRef::commands).collect();
                match end {
                    End::Answered => {
                        tell(self.args, &self.screen, &Trouble::Call { command, error: &error, commands })
                    }
                    other => other,
                }
            }
            Err(Early::Form(error)) => {
                tell(self.args, &self.screen, &Trouble::Form { command: &self.args.command, error: &error })
            }
        }
    }

    async fn one(
        &mut self,
        pit: &Snakepit,
        arguments: Value,
        left: Option<Duration>,
        printer: &Printer,
    ) -> Result<(), Early> {
        let screen = self.screen.clone();
        let mut call = pit
            .call::<Value>(&self.args.command, arguments)
            .on_progress(move |progress| screen.progress(&progress));
        if let Some(session) = &self.args.session {
            call = call.session(session.as_str());
        }
        if let Some(left) = left {
            call = call.timeout(left);
        }
        let value = tokio::select! {
            happening = self.outside.next() => return Err(Early::Outside(happening)),
            value = call.into_future() => value.map_err(|error| Early::failed(error, self.args.timeout))?,
        };
        self.print(&value, printer).await
    }

    async fn stream(
        &mut self,
        pit: &Snakepit,
        arguments: Value,
        left: Option<Duration>,
        printer: &Printer,
    ) -> Result<(), Early> {
        let mut stream = pit.stream::<Value>(&self.args.command, arguments);
        if let Some(session) = &self.args.session {
            stream = stream.session(session.as_str());
        }
        if let Some(left) = left {
            stream = stream.timeout(left);
        }
        let failed = |error| Early::failed(error, self.args.timeout);
        let mut stream = stream.open().map_err(failed)?;
        loop {
            let item = tokio::select! {
                happening = self.outside.next() => return Err(Early::Outside(happening)),
                item = next(&mut stream, &self.screen) => item,
            };
            match item {
                Some(Ok(value)) => self.print(&value, printer).await?,
                Some(Err(error)) => return Err(failed(error)),
                None => return Ok(()),
            }
        }
    }

    async fn print(&mut self, value: &Value, printer: &Printer) -> Result<(), Early> {
        let bytes = self.form.render(value).map_err(Early::Form)?;
        if self.args.stream {
            self.screen.clear();
        } else {
            self.screen.finish();
        }
        tokio::select! {
            happening = self.outside.next() => Err(Early::Outside(happening)),
            taken = printer.print(bytes) => if taken { Ok(()) } else { Err(Early::Unprintable) },
        }
    }

    /// Until all is printed.
    async fn finish(&mut self, printer: Printer) -> End {
        tokio::select! {
            happening = self.outside.next() => happening.into(),
            printed = printer.finish() => match printed {
                Ok(()) => End::Answered,
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => End::Unread,
                Err(error) => tell(self.args, &self.screen, &Trouble::Print(&error)),
            },
        }
    }

    /// Ends the worker; a signal meanwhile kills it at once.
    async fn stop(&mut self, pit: &Snakepit) {
        let mut stop = pin!(pit.stop_within(STOP_GRACE));
        loop {
            tokio::select! {
                () = &mut stop => return,
                happening = self.outside.next() => if let (Happening::Signal(_), Some(run)) = (happening, pit.run()) {
                    let run = run.clone();
                    let _ = tokio::task::spawn_blocking(move || run.stop_within(Duration::ZERO)).await;
                },
            }
        }
    }
}

/// Why there is nothing more to print.
enum Early {
    Outside(Happening),
    Unprintable,
    Failed(CallError),
    Form(serde_json::Error),
}

impl Early {
    /// The caller knows the time that it gave, not what was left of it when the worker was ready.
    fn failed(mut error: CallError, timeout: Option<Duration>) -> Self {
        if let (CallError::Timeout { after, .. }, Some(timeout)) = (&mut error, timeout) {
            *after = timeout;
        }
        Self::Failed(error)
    }
}

impl From<Happening> for End {
    fn from(happening: Happening) -> Self {
        match happening {
            Happening::Signal(signal) => Self::Interrupted(signal),
            Happening::Unread => Self::Unread,
        }
    }
}

async fn within<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

/// The next item of a stream; progress that is told meanwhile is shown.
async fn next(stream: &mut CallStream<Value>, screen: &Screen) -> Option<Result<Value, CallError>> {
    poll_fn(|context| {
        let item = stream.poll_next_unpin(context);
        if let (Poll::Pending, Some(progress)) = (&item, stream.take_progress()) {
            screen.progress(&progress);
        }
        item
    })
    .await
}

/// Whether a worker was not ready in time.
fn is_late(error: &EngineError) -> bool {
    matches!(error, EngineError::Start { source: StartError::Timeout { .. }, .. })
}
