//! Where the trace of a call comes from, and where it goes on in the host.

use std::sync::Arc;

use tracing::Span;

use super::TraceContext;

/// The trace that a call belongs to: what its caller has said, else what the tool that makes it belongs to.
pub(crate) fn continued(
    _span: &Span,
    said: Option<Arc<TraceContext>>,
    of_tool: impl FnOnce() -> Option<Arc<TraceContext>>,
) -> Option<Arc<TraceContext>> {
    said.or_else(of_tool)
}

/// A tool of the host, run as a part of the trace of the call that asks for it.
pub(crate) fn attached<F: Future>(_trace: Option<&Arc<TraceContext>>, tool: F) -> F {
    tool
}
