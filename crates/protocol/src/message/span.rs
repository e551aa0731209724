//! TELEMETRY: a span of the worker's code, or what no host knows.

use serde::Deserialize;

use crate::value::Encoded;

/// The name of spans among a worker's telemetry.
const SPAN: &str = "snakepit.span";
/// The maximum length of a TELEMETRY. Longer ones are ignored.
const MOST_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
struct SpanRecord {
    name: String,
    value: Box<WorkerSpan>,
}

/// A span that has ended in a worker.
#[derive(PartialEq, Eq, Debug, Deserialize)]
pub struct WorkerSpan {
    /// Its name.
    pub name: String,
    /// The trace: 32 lower-case hex digits.
    pub trace_id: String,
    /// The span: 16 lower-case hex digits.
    pub span_id: String,
    /// The span around it. `None` if the trace begins here.
    pub parent_id: Option<String>,
    /// How long it took, in microseconds.
    pub took_us: u64,
    /// The type of the exception that left it.
    #[serde(default)]
    pub error: Option<String>,
    /// Its attributes: a JSON object.
    #[serde(default)]
    pub attributes: Option<String>,
}

impl WorkerSpan {
    /// Decodes a TELEMETRY. Returns `None` if it is no span, or an invalid one.
    pub fn decode(payload: &Encoded) -> Option<Box<Self>> {
        if payload.payload_len() > MOST_BYTES {
            return None;
        }
        let SpanRecord { name, value: span } = payload.decode_within(MOST_BYTES).ok()?;
        let parent_is_one = span.parent_id.as_ref().is_none_or(|parent| is_hex(parent, 16));
        let is_one = name == SPAN && is_hex(&span.trace_id, 32) && is_hex(&span.span_id, 16) && parent_is_one;
        is_one.then_some(span)
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
