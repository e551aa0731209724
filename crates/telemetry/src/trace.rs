//! W3C trace context: the trace that a call belongs to, and the span that its work is a child of.
//!
//! The context travels with the call into the worker's code and on to whatever that code calls. Nothing is sampled or
//! dropped here: flags are passed on unchanged.

use std::fmt;
use std::sync::Arc;

/// The length of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// The limits of a `tracestate`: bytes and entries.
const MOST_STATE: usize = 512;
const MOST_ENTRIES: usize = 32;

/// The error of a text that is not a trace context. It is rejected before anything is called.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The text is not a `traceparent`.
    #[error("{text:?} is not a traceparent: {reason}; it looks like 00-<32 hex digits>-<16 hex digits>-01")]
    Parent {
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The text is not a `tracestate`.
    #[error("{text:?} is not a tracestate: {reason}; it looks like vendor=value,other=value")]
    State {
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// A trace and its current span: `traceparent` and `tracestate` of the W3C.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// A checked `traceparent` of version 00.
    parent: Box<str>,
    state: Option<Box<str>>,
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceContext({}", self.parent)?;
        self.state.as_ref().map_or(Ok(()), |state| write!(f, ", {state}"))?;
        f.write_str(")")
    }
}

tokio::task_local! {
    static CURRENT: Arc<TraceContext>;
}

impl TraceContext {
    /// Parses a `traceparent`. Keeps only the known part of a later version.
    pub fn new(traceparent: &str) -> Result<Self, TraceError> {
        match read_parent(traceparent) {
            Ok(parent) => Ok(Self { parent, state: None }),
            Err(reason) => Err(TraceError::Parent { text: shortened(traceparent), reason }),
        }
    }

    /// Adds a `tracestate`. An empty one counts as absent.
    pub fn with_state(mut self, tracestate: &str) -> Result<Self, TraceError> {
        if let Err(reason) = check_state(tracestate) {
            return Err(TraceError::State { text: shortened(tracestate), reason });
        }
        self.state = (!tracestate.trim().is_empty()).then(|| tracestate.into());
        Ok(self)
    }

    /// Returns the `traceparent`, as it is sent.
    pub fn traceparent(&self) -> &str {
        &self.parent
    }

    /// Returns the `tracestate`, which vendors of tracing systems add.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Returns the trace id: 32 hex digits.
    pub fn trace_id(&self) -> &str {
        &self.parent[3..35]
    }

    /// Returns the current span, which is the parent of the next one: 16 hex digits.
    pub fn span_id(&self) -> &str {
        &self.parent[36..52]
    }

    /// Reports whether the trace is recorded.
    pub fn is_sampled(&self) -> bool {
        u8::from_str_radix(&self.parent[53..], 16).is_ok_and(|flags| flags & 1 == 1)
    }

    /// Runs a future. Calls that it makes belong to this trace, unless they name another.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(Arc::new(self), future).await
    }

    /// Returns the context that [`TraceContext::scope`] has set for this task.
    pub fn of_scope() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// Returns an upper bound of the bytes that it takes to send the context.
    pub fn wire_len(&self) -> usize {
        LENGTH + self.state.as_ref().map_or(0, |state| state.len()) + 16
    }
}

fn read_parent(text: &str) -> Result<Box<str>, &'static str> {
    let bytes = text.as_bytes();
    if bytes.len() < LENGTH {
        return Err("it is too short");
    }
    if [2, 35, 52].iter().any(|at| bytes[*at] != b'-') {
        return Err("its four parts are not joined by `-`");
    }
    let parts = [&bytes[..2], &bytes[3..35], &bytes[36..52], &bytes[53..LENGTH]];
    let hex = |part: &&[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !parts.iter().all(hex) {
        return Err("its parts must be lower-case hex digits");
    }
    let [version, trace, span, _] = parts;
    if trace.iter().all(|byte| *byte == b'0') {
        return Err("its trace id is zero");
    }
    if span.iter().all(|byte| *byte == b'0') {
        return Err("its span id is zero");
    }
    match version {
        b"ff" => Err("its version is ff, which does not exist"),
        b"00" if bytes.len() > LENGTH => Err("it is too long"),
        b"00" => Ok(text.into()),
        _ if bytes.len() > LENGTH && bytes[LENGTH] != b'-' => Err("it is too long"),
        _ => {
            // Only the first flag has the same meaning in all versions.
            let sampled = bytes[LENGTH - 1].is_ascii_digit() && bytes[LENGTH - 1] % 2 == 1
                || matches!(bytes[LENGTH - 1], b'b' | b'd' | b'f');
            Ok(format!("00{}0{}", &text[2..53], u8::from(sampled)).into())
        }
    }
}

fn check_state(text: &str) -> Result<(), &'static str> {
    if text.len() > MOST_STATE {
        return Err("it is longer than 512 bytes");
    }
    if !text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
        return Err("it has characters that are not printable ASCII");
    }
    let entries: Vec<&str> = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    if entries.len() > MOST_ENTRIES {
        return Err("it has more than 32 entries");
    }
    let is_entry = |entry: &&str| entry.split_once('=').is_some_and(|(key, _)| !key.is_empty());
    if entries.iter().all(is_entry) { Ok(()) } else { Err("one of its entries has no key") }
}

/// Returns the beginning of an invalid text, for an error.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_has_a_trace_and_a_span() {
        let context = TraceContext::new(PARENT).expect("valid");
        assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span_id(), "b7ad6b7169203331");
        assert!(context.is_sampled());
        assert_eq!(context.traceparent(), PARENT);
        assert_eq!(context.with_state("a=1,b=2").expect("valid").tracestate(), Some("a=1,b=2"));
    }

    #[test]
    fn the_known_part_of_a_later_version_is_read() {
        let later = PARENT.replacen("00-", "cc-", 1).replace("-01", "-0f");
        for text in [later.clone(), format!("{later}-what-comes-later")] {
            assert_eq!(TraceContext::new(&text).expect("valid").traceparent(), PARENT);
        }
        assert!(TraceContext::new(&format!("{later}x")).is_err());
    }

    #[test]
    fn an_invalid_traceparent_is_named_in_the_error() {
        let zero_trace = PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32));
        let zero_span = PARENT.replace("b7ad6b7169203331", &"0".repeat(16));
        let wrong = [
            ("", "it is too short"),
            ("nonsense", "it is too short"),
            (&PARENT[..54], "it is too short"),
            (&format!("{PARENT}-more"), "it is too long"),
            (&PARENT.to_uppercase(), "its parts must be lower-case hex digits"),
            (&PARENT.replacen("00-", "ff-", 1), "its version is ff, which does not exist"),
            (&PARENT.replace('-', "_"), "its four parts are not joined by `-`"),
            (&zero_trace, "its trace id is zero"),
            (&zero_span, "its span id is zero"),
            (&"ü".repeat(40), "its four parts are not joined by `-`"),
        ];
        for (text, reason) in wrong {
            let error = TraceContext::new(text).expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
            assert!(error.starts_with(&format!("{:?} is not a traceparent", shortened(text))), "{error}");
        }
    }

    #[test]
    fn a_tracestate_is_checked_too() {
        let context = TraceContext::new(PARENT).expect("valid");
        let many = vec!["k=v"; 33].join(",");
        for wrong in ["no-key", "=v", "a=ü", &"a=".repeat(300), &many] {
            let error = context.clone().with_state(wrong).expect_err(wrong).to_string();
            assert!(error.contains("is not a tracestate"), "{error}");
        }
        assert_eq!(context.with_state("").expect("none").tracestate(), None);
    }
}
