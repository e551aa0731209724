//! Traces and spans that a worker reports.
//!
//! The host does not trust them: invalid ones are ignored, and texts are bounded, because a listener may keep thousands.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::call::Call;
use crate::telemetry::{Event, Level, TraceContext, is_heard};
use crate::value::Encoded;

/// The name of spans among a worker's telemetry.
const SPAN: &str = "snakepit.span";
/// The maximum length of a name, in characters.
const MOST_NAME: usize = 200;
/// The maximum length of the attributes. Longer ones are left out, because a truncated JSON text is useless.
const MOST_ATTRIBUTES: usize = 4096;
/// The maximum size of a span. Larger ones are ignored.
const MOST_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
struct SpanRecord {
    name: String,
    value: Box<WorkerSpan>,
}

/// A span that a worker reports.
#[derive(Deserialize)]
pub(crate) struct WorkerSpan {
    name: String,
    trace_id: String,
    span_id: String,
    parent_id: Option<String>,
    took_us: u64,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    attributes: Option<String>,
}

/// Reads the trace of a tool call. The host does not trust the worker, so an invalid part is ignored.
pub(crate) fn read_trace(traceparent: &str, tracestate: Option<&str>) -> Option<TraceContext> {
    let context = TraceContext::new(traceparent).ok()?;
    let with_state = tracestate.and_then(|state| context.clone().with_state(state).ok());
    Some(with_state.unwrap_or(context))
}

/// Reads a span. Returns `None` if the span is invalid or nothing listens for it.
pub(crate) fn read(payload: &Encoded) -> Option<Box<WorkerSpan>> {
    if !is_heard(Level::Debug) || payload.payload_len() > MOST_BYTES {
        return None;
    }
    let SpanRecord { name, value: span } = payload.decode_within(MOST_BYTES).ok()?;
    let parent_is_one = span.parent_id.as_ref().is_none_or(|parent| is_hex(parent, 16));
    if name != SPAN || !is_hex(&span.trace_id, 32) || !is_hex(&span.span_id, 16) || !parent_is_one {
        return None;
    }
    Some(span)
}

impl WorkerSpan {
    /// Returns the event of the span. `call` is the call that the span belongs to.
    pub(crate) fn told_of(self, call: &Call) -> Option<Event> {
        let (pool, worker) = call.served_by()?;
        Some(Event::WorkerSpan {
            pool,
            worker,
            call: call.id().get(),
            name: bounded(&self.name),
            trace_id: self.trace_id.into(),
            span_id: self.span_id.into(),
            parent_id: self.parent_id.map(Into::into),
            took: Duration::from_micros(self.took_us),
            error: self.error.as_deref().map(bounded),
            attributes: self.attributes.filter(|text| text.len() <= MOST_ATTRIBUTES).map(Into::into),
        })
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn bounded(text: &str) -> Arc<str> {
    match text.char_indices().nth(MOST_NAME) {
        None => text.into(),
        Some((end, _)) => text[..end].into(),
    }
}
