"""Traces: the trace that a call belongs to, and the spans that its code creates.

Owns the W3C trace context of the code that runs now: that of the innermost `with snakepit.span(...)`, otherwise that of
the call. Must not know how calls are run. The loops report here when a call with a trace begins and ends, so that
OpenTelemetry, if the worker uses it, makes its spans children of the caller's.
"""

import sys
from _contextvars import ContextVar
from os import urandom
from time import monotonic

from ..context import Context, NoCall
from ..context import context as call_context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    Trace = List[str]

# The innermost span of a call's code: the call's id, and `[traceparent]` or `[traceparent, tracestate]`. The id is
# needed because a worker that waits may serve another call in the same thread.
_inner: "ContextVar[Optional[Tuple[int, Trace]]]" = ContextVar("snakepit_trace", default=None)


def trace_context() -> "Optional[str]":
    """Returns the `traceparent` of the innermost span, otherwise that of the call. Returns None if there is no trace.

    In a batch, it is that of the first call that has one.
    """
    try:
        context = call_context()
    except NoCall:
        return None
    trace = _current(context)
    return trace[0] if trace else None


def _current(context: "Context") -> "Optional[Trace]":
    inner = _inner.get()
    if inner is not None and inner[0] == context.call_id:
        return inner[1]
    return _valid(context._options.get("trace"))


def _valid(trace: "Any") -> "Optional[Trace]":
    return trace if type(trace) is list and trace and type(trace[0]) is str and len(trace[0]) == 55 else None


class span:
    """A part of a call's work: `with snakepit.span("load", rows=3):`.

    It is a child of the span around it or of the caller's, and is reported to the host when it ends. Keyword arguments
    become its attributes, and `set` adds more. Outside a call it does nothing.
    """

    __slots__ = ("name", "attributes", "traceparent", "_context", "_parent", "_began", "_token", "_attached")

    def __init__(self, name: str, /, **attributes: "Any") -> None:
        self.name = name
        self.attributes: "Dict[str, Any]" = attributes
        self.traceparent: "Optional[str]" = None
        self._context: "Optional[Context]" = None
        self._parent: "Optional[str]" = None
        self._began = 0.0
        self._token: "Any" = None
        self._attached: "Any" = None

    def set(self, **attributes: "Any") -> None:
        """Adds attributes to the span."""
        self.attributes.update(attributes)

    def __enter__(self) -> "span":
        try:
            self._context = call_context()
        except NoCall:
            return self
        around = _current(self._context)
        # Without a trace, a new one begins here.
        trace = around[0][3:35] if around else urandom(16).hex()
        self._parent = around[0][36:52] if around else None
        flags = around[0][53:55] if around else "01"
        self.traceparent = f"00-{trace}-{urandom(8).hex()}-{flags}"
        own = [self.traceparent, *around[1:]] if around else [self.traceparent]
        self._token = _inner.set((self._context.call_id, own))
        self._attached = _attach(own)
        self._began = monotonic()
        return self

    def __exit__(self, kind: "Any", error: "Any", traceback: "Any") -> None:
        if self._context is None or self.traceparent is None:
            return
        took = monotonic() - self._began
        context, self._context = self._context, None
        _detach(self._attached)
        try:
            _inner.reset(self._token)
        except ValueError:
            pass  # closed in another context than it was opened in, for example by the end of an asynchronous generator
        value = {
            "name": str(self.name),
            "trace_id": self.traceparent[3:35],
            "span_id": self.traceparent[36:52],
            "parent_id": self._parent,
            "took_us": round(took * 1000000),
        }
        if kind is not None:
            value["error"] = kind.__qualname__
        if self.attributes:
            from json import dumps

            value["attributes"] = dumps(self.attributes, default=str)
        try:
            context.telemetry("snakepit.span", value)
        except RuntimeError:
            pass  # the call is over, or this is a forked process: there is no recipient


# --- for the loops ---


def outgoing(context: "Context", options: "Any") -> "Any":
    """Returns the options of a HOST_CALL, with the trace if the host cannot know it."""
    inner = _inner.get()
    if inner is None or inner[0] != context.call_id:
        return options
    return {**(options or {}), "trace": inner[1]}


def begin(options: "Any") -> "Any":
    """Begins a call with the option `trace` in this thread or task. The result must be passed to `end`."""
    trace = _valid(options.get("trace"))
    return None if trace is None else _attach(trace)


def end(attached: "Any") -> None:
    """Ends a call."""
    _detach(attached)


def begin_turn(call: int, options: "Any", indices: "List[int]") -> "Any":
    """Begins some of the calls that came with the option `traces`. They are run together."""
    traces = options.get("traces")
    if type(traces) is not list:
        return None
    for index in indices:
        trace = _valid(traces[index]) if index < len(traces) else None
        if trace is not None:
            return _inner.set((call, trace)), _attach(trace)
    return None


def end_turn(begun: "Any") -> None:
    """Ends these calls."""
    if begun is not None:
        _detach(begun[1])
        _inner.reset(begun[0])


def _attach(trace: "Trace") -> "Any":
    """Makes this the current span of OpenTelemetry, if the worker's code uses OpenTelemetry."""
    if "opentelemetry" not in sys.modules:
        return None
    try:
        from opentelemetry import context, trace as api  # type: ignore[import-not-found,unused-ignore]

        parent = trace[0]
        state = api.TraceState.from_header(trace[1:2])
        own = api.SpanContext(
            int(parent[3:35], 16), int(parent[36:52], 16), True, api.TraceFlags(int(parent[53:55], 16)), state
        )
        return context.attach(api.set_span_in_context(api.NonRecordingSpan(own)))
    except Exception:  # an incompatible version: the call matters more than its trace
        return None


def _detach(attached: "Any") -> None:
    if attached is None:
        return
    try:
        from opentelemetry import context  # type: ignore[import-not-found,unused-ignore]

        context.detach(attached)
    except Exception:
        pass
