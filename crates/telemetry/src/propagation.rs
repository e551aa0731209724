//! Where the trace of a call comes from, and where it continues in the host.
//!
//! Without the feature `opentelemetry`, the trace comes from the caller and continues in the calls of tools that work
//! for the call. With it, the current span is the caller unless another one is named, the call's own span comes
//! between, and a tool runs inside the trace of the call that asked for it.

#[cfg(feature = "opentelemetry")]
pub use bridged::{attached, continued};
#[cfg(not(feature = "opentelemetry"))]
pub use plain::{attached, continued};

#[cfg(not(feature = "opentelemetry"))]
mod plain {
    use std::sync::Arc;

    use tracing::Span;

    use crate::TraceContext;

    /// Returns the trace that a call belongs to: the trace that its caller named, or else that of the tool that makes
    /// the call.
    pub fn continued(
        _span: &Span,
        said: Option<Arc<TraceContext>>,
        of_tool: impl FnOnce() -> Option<Arc<TraceContext>>,
    ) -> Option<Arc<TraceContext>> {
        said.or_else(of_tool)
    }

    /// Runs a tool of the host as part of the trace of the call that asked for it.
    pub fn attached<F: Future>(_trace: Option<&Arc<TraceContext>>, tool: F) -> F {
        tool
    }
}

#[cfg(feature = "opentelemetry")]
mod bridged {
    use std::sync::Arc;

    use opentelemetry::context::FutureExt;
    use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
    use opentelemetry::{Context, context::WithContext};
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    use crate::TraceContext;

    /// Returns the trace that a call belongs to: its own span in that trace, if recorded, or else what its caller
    /// named, the current span, or the trace of the tool that makes the call.
    pub fn continued(
        span: &Span,
        said: Option<Arc<TraceContext>>,
        of_tool: impl FnOnce() -> Option<Arc<TraceContext>>,
    ) -> Option<Arc<TraceContext>> {
        if !span.is_disabled() {
            if let Some(parent) = said.as_deref().and_then(remote) {
                // An error means that no layer bridges the span. Then the code below does not use the span either.
                let _ = span.set_parent(parent);
            }
            if let Some(own) = of(&span.context()) {
                return Some(own);
            }
        }
        said.or_else(current).or_else(of_tool)
    }

    fn current() -> Option<Arc<TraceContext>> {
        let span = Span::current();
        let of_span = if span.is_disabled() { None } else { of(&span.context()) };
        of_span.or_else(|| of(&Context::current()))
    }

    /// Runs a tool of the host as part of the trace of the call that asked for it.
    pub fn attached<F: Future>(trace: Option<&Arc<TraceContext>>, tool: F) -> WithContext<F> {
        let context = trace.and_then(|trace| remote(trace)).unwrap_or_else(Context::current);
        tool.with_context(context)
    }

    fn of(context: &Context) -> Option<Arc<TraceContext>> {
        let span = context.span();
        let span = span.span_context();
        if !span.is_valid() {
            return None;
        }
        let flags = span.trace_flags().to_u8();
        let parent = format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id());
        let known = TraceContext::new(&parent).ok()?;
        // A state that is too long is left out, as the W3C requires.
        let with_state = known.clone().with_state(&span.trace_state().header());
        Some(Arc::new(with_state.unwrap_or(known)))
    }

    /// Returns a context with the remote span that this trace names.
    fn remote(trace: &TraceContext) -> Option<Context> {
        let state = trace.tracestate().and_then(|state| state.parse::<TraceState>().ok());
        let flags = u8::from_str_radix(&trace.traceparent()[53..], 16).ok()?;
        let span = SpanContext::new(
            TraceId::from_hex(trace.trace_id()).ok()?,
            SpanId::from_hex(trace.span_id()).ok()?,
            TraceFlags::new(flags),
            true,
            state.unwrap_or_default(),
        );
        Some(Context::new().with_remote_span_context(span))
    }
}
