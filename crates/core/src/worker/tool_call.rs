//! Tools that workers call: each runs on behalf of a call, and is told in one event.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::StreamExt;
use tokio::time::Instant;

use super::Worker;
use crate::call::{Call, CallId, Chain, Link, RemoteError, RemoteErrorKind, is_reserved};
use crate::error_text::panic_message;
use crate::telemetry::{self, Event, Level, TraceContext, is_heard};
use crate::tool::{ToolAnswer, ToolContext};
use crate::value::Encoded;

/// The outcome of a tool.
#[derive(Clone, Copy)]
enum ToolOutcome {
    Ok,
    Failed,
    Cancelled,
}

/// Emits the event of a tool when the tool ends. If it is dropped before, the event says `cancelled`. Internal tools
/// emit no event.
struct ToolReport(Option<(Link, Instant)>);

impl ToolReport {
    fn new(link: &Link) -> Self {
        let is_reported = is_heard(Level::Debug) && !is_reserved(&link.tool);
        Self(is_reported.then(|| (link.clone(), Instant::now())))
    }

    fn end(mut self, outcome: ToolOutcome) {
        self.emit(outcome);
    }

    fn emit(&mut self, outcome: ToolOutcome) {
        let Some((link, began)) = self.0.take() else { return };
        let outcome = match outcome {
            ToolOutcome::Ok => "ok",
            ToolOutcome::Failed => "failed",
            ToolOutcome::Cancelled => "cancelled",
        };
        let Link { call, pool, command, tool } = link;
        telemetry::emit(Event::ToolStop {
            pool,
            command,
            call: call.get(),
            tool,
            outcome,
            took: began.elapsed(),
        });
    }
}

impl Drop for ToolReport {
    fn drop(&mut self) {
        self.emit(ToolOutcome::Cancelled);
    }
}

/// A permit for the worker to serve a nested call in the place of a call that waits for a tool.
struct NestedCallPermit(Arc<Worker>, CallId);

impl NestedCallPermit {
    fn new(worker: Arc<Worker>, call: CallId) -> Self {
        worker.queue.asks(&worker, call);
        Arc::clone(&worker.queue).feed(worker.index);
        Self(worker, call)
    }
}

impl Drop for NestedCallPermit {
    fn drop(&mut self) {
        self.0.queue.answered(&self.0, self.1);
    }
}

impl Call {
    /// Calls a tool of the host on behalf of this call. Dropping the future cancels the tool.
    pub fn ask(&self, tool: &str, args: Encoded) -> BoxFuture<'static, Result<ToolAnswer, RemoteError>> {
        self.ask_within(tool, args, None)
    }

    /// Calls a tool like [`Call::ask`], from inside a span of the worker. The tool's work becomes a child of that span.
    pub fn ask_within(
        &self,
        tool: &str,
        args: Encoded,
        span: Option<TraceContext>,
    ) -> BoxFuture<'static, Result<ToolAnswer, RemoteError>> {
        let Some(lease) = &self.lease else {
            return futures_util::future::ready(Err(RemoteError::new(
                RemoteErrorKind::Refused,
                "the call has no worker",
            )))
            .boxed();
        };
        let id = self.id;
        let worker = Arc::clone(Worker::of(&**lease.holder()));
        let queue = &worker.queue;
        let link = Link {
            call: self.id,
            pool: queue.pool_name(),
            command: Arc::clone(&self.command.name),
            tool: tool.into(),
        };
        let trace = span.map(Arc::new).or_else(|| self.extras.as_ref()?.trace.clone());
        let report = ToolReport::new(&link);
        let chain = Arc::new(Chain::extended(self.chain().map(Arc::as_ref), link, trace));
        let context = ToolContext {
            call: self.id,
            command: Arc::clone(&self.command.name),
            pool: queue.pool_name(),
            session: self.extras.as_ref().and_then(|extras| extras.session.clone()),
            sessions: queue.session_store(),
        };
        match queue.tools().find(tool) {
            Err(error) => {
                report.end(ToolOutcome::Failed);
                futures_util::future::ready(Err(error)).boxed()
            }
            Ok(run) => async move {
                let permit = NestedCallPermit::new(worker, id);
                let work = AssertUnwindSafe(async { run(args, context).await }).catch_unwind();
                let work = telemetry::attached(chain.trace(), work);
                let answer = Arc::clone(&chain).scope(work).await;
                let answer = answer.unwrap_or_else(|panic| Err(panicked(&*panic)));
                report.end(if answer.is_ok() { ToolOutcome::Ok } else { ToolOutcome::Failed });
                match answer? {
                    ToolAnswer::Value(value) => Ok(ToolAnswer::Value(value)),
                    // Items are made while they are read, so they run in the same chain, and under the permit until the
                    // last one.
                    ToolAnswer::Stream(items) => {
                        let items = AssertUnwindSafe(items).catch_unwind();
                        let items = items.map(|item| item.unwrap_or_else(|panic| Err(panicked(&*panic))));
                        let items = chain.scope_stream(items.boxed()).inspect(move |_| _ = &permit);
                        Ok(ToolAnswer::Stream(items.boxed()))
                    }
                }
            }
            .boxed(),
        }
    }
}

/// Converts the panic of a tool for the worker.
fn panicked(panic: &(dyn Any + Send)) -> RemoteError {
    RemoteError::new(RemoteErrorKind::Exception, format!("the tool panicked: {}", panic_message(panic)))
}
