//! The trace, the span and the events of a call. The trace travels with the call, the span lasts as long as the call,
//! and the end of the call is an event.

use std::sync::Arc;

use tracing::Span;
use tracing::field::Empty;

use super::builder::CallOptions;
use super::pending::PendingCall;
use crate::call::CallError;
use crate::call::PoolCommand;
use crate::queue::AdmissionPermit;
use crate::queue::{CallOutcome, PoolInner};
use crate::telemetry::{self, Event, Level, TraceContext, TraceError, emit, emit_with, is_heard};

impl CallOptions {
    /// Creates the span of the call, if spans are collected.
    pub(super) fn span(&self) -> Span {
        tracing::debug_span!(
            target: "snakepit",
            "snakepit.call",
            command = &*self.command.name,
            pool = &*self.pool.name,
            call = Empty,
            worker = Empty,
            outcome = Empty,
        )
    }

    /// Determines which trace the call belongs to: the one that its caller set, or the one in which it is made.
    pub(super) fn note_trace(&mut self, span: &Span) -> Result<(), CallError> {
        let said = self.trace_headers().map_err(|source| {
            let command = self.command.name.to_string();
            CallError::Trace { command, source }
        })?;
        let chain = || self.extras.as_ref()?.chain.as_ref()?.trace().cloned();
        let known = said.map(Arc::new).or_else(TraceContext::of_scope);
        if let Some(trace) = telemetry::continued(span, known, chain) {
            self.extras().trace = Some(trace);
        }
        Ok(())
    }

    fn trace_headers(&mut self) -> Result<Option<TraceContext>, TraceError> {
        let Some(said) = self.extras.as_mut().and_then(|extras| extras.trace_headers.take()) else {
            return Ok(None);
        };
        // By the W3C's rules, a state without a parent means nothing.
        let Some(parent) = &said.parent else { return Ok(None) };
        let context = TraceContext::new(parent)?;
        said.state.as_deref().map_or(Ok(context.clone()), |state| context.with_state(state)).map(Some)
    }
}

/// Emits the event of a call that was not admitted.
pub(super) fn tell_refusal(pool: &PoolInner, command: &PoolCommand, error: &CallError) {
    emit_with(Level::Debug, || {
        let (pool, command) = (Arc::clone(&pool.name), Arc::clone(&command.name));
        match error {
            CallError::Saturated { depth, .. } => Event::QueueFull { pool, command, depth: *depth },
            other => Event::CallRefused { pool, command, reason: other.to_string().into() },
        }
    });
}

/// Settles a call that its pool did not take, and returns the error.
pub(super) fn refused(
    pool: &PoolInner,
    command: &PoolCommand,
    permit: Option<AdmissionPermit>,
    error: CallError,
) -> CallError {
    if let Some(permit) = permit {
        pool.settle(command, permit, CallOutcome::of(&error));
        tell_refusal(pool, command, &error);
    }
    error
}

impl PendingCall {
    pub(super) fn tell_beginning(&self) {
        self.span.record("call", self.id.get());
        if self.streams {
            emit_with(Level::Debug, || Event::StreamOpened {
                pool: Arc::clone(&self.pool.name),
                command: Arc::clone(&self.command.name),
                call: self.id.get(),
            });
        }
    }

    pub(super) fn tell_queue_timeout(&self) {
        emit_with(Level::Debug, || Event::QueueTimeout {
            pool: Arc::clone(&self.pool.name),
            command: Arc::clone(&self.command.name),
            call: self.id.get(),
            waited: self.queued_at.elapsed(),
            depth: self.pool.scheduler().depth(),
        });
    }

    pub(super) fn tell_end(&mut self, outcome: CallOutcome) {
        let span = std::mem::replace(&mut self.span, Span::none());
        let heard = is_heard(Level::Debug);
        if !heard && span.is_disabled() {
            return;
        }
        let (pool, command) = (Arc::clone(&self.pool.name), Arc::clone(&self.command.name));
        let (call, outcome, took) = (self.id.get(), outcome.as_str(), self.began.elapsed());
        let worker: Option<Arc<str>> = self.state.worker().map(|worker| worker.id.as_str().into());
        span.record("outcome", outcome);
        if let Some(worker) = &worker {
            span.record("worker", &**worker);
        }
        if !heard {
            return;
        }
        let _entered = span.enter();
        if self.streams {
            let (pool, command) = (Arc::clone(&pool), Arc::clone(&command));
            emit(Event::StreamEnded { pool, command, call, items: self.delivered, outcome, took });
        }
        emit(Event::CallStop {
            pool,
            command,
            call,
            worker,
            outcome,
            took,
            waited: self.waited(),
            trace_id: self.trace.as_ref().map(|trace| trace.trace_id().into()),
        });
    }

    /// Returns how long the last attempt waited for a worker, or how long it has waited so far if it got none.
    fn waited(&self) -> std::time::Duration {
        match self.state.placed_at() {
            Some(placed) => placed.saturating_duration_since(self.queued_at),
            None if self.state.worker().is_some() => std::time::Duration::ZERO,
            None => self.queued_at.elapsed(),
        }
    }
}

impl CallOutcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Died => "died",
            Self::TimedOut => "timed_out",
            Self::QueueTimedOut => "queue_timed_out",
            Self::Saturated => "saturated",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::Stopped => "stopped",
        }
    }
}
