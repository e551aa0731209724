//! A trace as it travels: `[traceparent]` or `[traceparent, tracestate]`.

use crate::value::write;

/// The texts of a trace. Here they are not checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceTexts<'a> {
    /// The `traceparent`.
    pub parent: &'a str,
    /// The `tracestate`.
    pub state: Option<&'a str>,
}

impl<'a> TraceTexts<'a> {
    pub(super) fn write(out: &mut Vec<u8>, Self { parent, state }: Self) {
        write::array_header(out, if state.is_some() { 2 } else { 1 });
        write::str(out, parent);
        if let Some(state) = state {
            write::str(out, state);
        }
    }

    pub(super) fn of_list(texts: &'a [String]) -> Option<Self> {
        Some(Self { parent: texts.first()?, state: texts.get(1).map(String::as_str) })
    }
}
