//! Spans of the worker's code, which it tells when they are over.
//!
//! Believed only so far: what is no span is ignored, and texts are bounded, for whoever listens may keep thousands.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::call::Call;
use crate::telemetry::{Event, Level, is_heard};
use crate::value::Encoded;

/// The name that spans have among what a worker measures.
const SPAN: &str = "snakepit.span";
/// The most that is kept of a name.
const MOST_NAME: usize = 200;
/// Attributes that are longer are left out: half a JSON text is none.
const MOST_ATTRIBUTES: usize = 4096;

#[derive(Deserialize)]
struct Told {
    name: String,
    value: Part,
}

#[derive(Deserialize)]
struct Part {
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

/// The span that a worker tells of a call that it has, if it is one.
pub(crate) fn read(call: &Call, payload: &Encoded) -> Option<Event> {
    if !is_heard(Level::Debug) {
        return None;
    }
    let berth = call.slot.as_ref()?.berth();
    let Told { name, value: span } = payload.decode().ok()?;
    let parent_is_one = span.parent_id.as_ref().is_none_or(|parent| is_hex(parent, 16));
    if name != SPAN || !is_hex(&span.trace_id, 32) || !is_hex(&span.span_id, 16) || !parent_is_one {
        return None;
    }
    Some(Event::WorkerSpan {
        pool: Arc::clone(&berth.pool.name),
        worker: berth.id.as_str().into(),
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

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn bounded(text: &str) -> Arc<str> {
    match text.char_indices().nth(MOST_NAME) {
        None => text.into(),
        Some((end, _)) => text[..end].into(),
    }
}
