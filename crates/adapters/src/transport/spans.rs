//! Traces and spans that a worker reports.
//!
//! The host does not trust them: invalid ones are ignored, and texts are bounded, because a listener may keep thousands.

use std::sync::Arc;
use std::time::Duration;

use snakepit_protocol::message::{TraceTexts, WorkerSpan};

use crate::call::Call;
use crate::telemetry::{Event, Level, TraceContext, is_heard};

/// The maximum length of a name, in characters.
const MOST_NAME: usize = 200;
/// The maximum length of the attributes. Longer ones are left out, because a truncated JSON text is useless.
const MOST_ATTRIBUTES: usize = 4096;

/// Reads the trace of a tool call. The host does not trust the worker, so an invalid part is ignored.
pub(crate) fn read_trace(texts: TraceTexts<'_>) -> Option<TraceContext> {
    let context = TraceContext::new(texts.parent).ok()?;
    let with_state = texts.state.and_then(|state| context.clone().with_state(state).ok());
    Some(with_state.unwrap_or(context))
}

/// Reports whether anything listens for spans.
pub(crate) fn are_heard() -> bool {
    is_heard(Level::Debug)
}

/// Returns the event of a span. `call` is the call that the span belongs to.
pub(crate) fn event_of(span: WorkerSpan, call: &Call) -> Option<Event> {
    let (pool, worker) = call.served_by()?;
    Some(Event::WorkerSpan {
        pool,
        worker,
        call: call.id().get(),
        name: bounded(&span.name),
        trace_id: span.trace_id.into(),
        span_id: span.span_id.into(),
        parent_id: span.parent_id.map(Into::into),
        took: Duration::from_micros(span.took_us),
        error: span.error.as_deref().map(bounded),
        attributes: span.attributes.filter(|text| text.len() <= MOST_ATTRIBUTES).map(Into::into),
    })
}

fn bounded(text: &str) -> Arc<str> {
    match text.char_indices().nth(MOST_NAME) {
        None => text.into(),
        Some((end, _)) => text[..end].into(),
    }
}
