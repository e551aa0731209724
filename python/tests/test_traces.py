"""Traces: the spans around the code of a call, and the spans that it creates."""

import json

import pytest
from harness import Worker

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"

SOURCE = """
    import snakepit
    outside = [snakepit.trace_context()]
    with snakepit.span("nowhere") as nowhere:
        outside.append(nowhere.traceparent)

    @snakepit.command
    def where():
        return snakepit.trace_context()

    @snakepit.command
    def before_any_call():
        return outside

    @snakepit.command
    def nested_spans():
        with snakepit.span("outer", rows=3, what=object) as outer:
            with snakepit.span("inner") as inner:
                return [outer.traceparent, inner.traceparent]

    @snakepit.command
    def items(n):
        with snakepit.span("all of them"):
            for _ in range(n):
                yield snakepit.trace_context()

    @snakepit.command
    def raises():
        with snakepit.span("bad"):
            raise KeyError("k")

    @snakepit.command
    def ask():
        with snakepit.span("asking"):
            return [snakepit.trace_context(), snakepit.context().host.call("tool")]

    @snakepit.command
    def in_a_thread():
        import contextvars, threading
        seen = []
        def look():
            with snakepit.span("in a thread"):
                seen.append(snakepit.trace_context())
        with snakepit.span("around"):
            seen.append(snakepit.trace_context())
            copy = contextvars.copy_context()
            thread = threading.Thread(target=copy.run, args=(look,))
            thread.start()
            thread.join()
        return seen

    @snakepit.command(batch=4)
    def together(value):
        return [[len(value), snakepit.trace_context()] for _ in value]
"""


def _spans_until(worker, call):
    """Returns the spans that are reported before the answer, and the answer."""
    spans = []
    while True:
        frame = worker.receive()
        if frame.kind == "TELEMETRY":
            assert frame.value["name"] == "snakepit.span"
            assert frame.call == call
            spans.append(frame.value["value"])
        elif frame.kind not in ("ITEM",):
            return spans, frame


@pytest.fixture(params=[1, 3], ids=["serial", "threads"])
def worker(request):
    with Worker(SOURCE, concurrency=request.param) as worker:
        worker.ready()
        yield worker


def _send(worker, name, args=None, trace=PARENT, **options):
    if trace is not None:
        options["trace"] = [trace]
    return worker.start(name, options=options or None, **(args or {}))


def _send_many(worker, name, many, options):
    worker.next_call += 1
    worker.send("CALLS", worker.next_call, [name, many, None, options])
    return worker.next_call


def a_call_knows_its_trace_and_only_its_own(worker):
    for trace in (PARENT, None, OTHER, None):
        call = _send(worker, "where", trace=trace)
        _, answer = _spans_until(worker, call)
        assert answer.value == trace


def no_trace_is_there_outside_of_a_call_and_a_span_does_nothing(worker):
    call = _send(worker, "before_any_call")
    spans, answer = _spans_until(worker, call)
    assert (spans, answer.value) == ([], [None, None])


def a_span_is_a_child_of_what_is_around_it(worker):
    call = _send(worker, "nested_spans")
    (inner, outer), answer = _spans_until(worker, call)
    assert answer.value == [f"00-{span['trace_id']}-{span['span_id']}-01" for span in (outer, inner)]
    assert outer["trace_id"] == inner["trace_id"] == PARENT[3:35]
    assert (outer["parent_id"], inner["parent_id"]) == (PARENT[36:52], outer["span_id"])
    assert outer["took_us"] >= inner["took_us"] >= 0
    assert json.loads(outer["attributes"]) == {"rows": 3, "what": "<class 'object'>"}
    assert "attributes" not in inner and "error" not in inner


def a_span_without_a_trace_begins_one(worker):
    call = _send(worker, "nested_spans", trace=None)
    (inner, outer), _ = _spans_until(worker, call)
    assert outer["parent_id"] is None and inner["trace_id"] == outer["trace_id"]


def a_span_around_a_stream_lasts_as_long_as_the_stream(worker):
    call = _send(worker, "items", {"n": 3}, stream=[10, 1 << 20])
    seen = [worker.receive().value for _ in range(3)]
    (span,), end = _spans_until(worker, call)
    assert end.kind == "END"
    assert seen == [f"00-{PARENT[3:35]}-{span['span_id']}-01"] * 3


def a_span_that_is_left_by_an_exception_names_its_type(worker):
    call = _send(worker, "raises")
    (span,), answer = _spans_until(worker, call)
    assert (answer.kind, span["error"]) == ("ERROR", "KeyError")


def a_tool_is_told_which_span_asks(worker):
    call = _send(worker, "ask")
    asked = worker.receive()
    assert asked.kind == "HOST_CALL"
    number, _, _, options = asked.value
    worker.send("HOST_RESULT", call, [number, "fine"])
    (span,), answer = _spans_until(worker, call)
    assert options["trace"] == [answer.value[0]]
    assert answer.value == [f"00-{PARENT[3:35]}-{span['span_id']}-01", "fine"]


def a_copied_context_takes_the_trace_into_a_thread(worker):
    call = _send(worker, "in_a_thread")
    (inner, around), answer = _spans_until(worker, call)
    assert (inner["name"], inner["parent_id"]) == ("in a thread", around["span_id"])
    assert answer.value[1][36:52] == inner["span_id"]


def a_batch_is_in_the_trace_of_the_first_call_that_has_one(worker):
    args = [{"value": n} for n in range(3)]
    call = _send_many(worker, "together", args, {"traces": [None, [OTHER], [PARENT]]})
    _, answer = _spans_until(worker, call)
    assert answer.value == [[True, [3, OTHER]]] * 3
    call = _send(worker, "where", trace=None)
    assert _spans_until(worker, call)[1].value is None


@pytest.mark.parametrize("trace", [None, "x", [], [1], ["short"], {"a": 1}, [None, None]])
def what_is_no_trace_is_no_harm(worker, trace):
    call = worker.start("where", options={"trace": trace})
    assert _spans_until(worker, call)[1].value is None
    call = _send_many(worker, "together", [{"value": 1}], {"traces": trace})
    assert _spans_until(worker, call)[1].value == [[True, [1, None]]]


OTEL = """
    import snakepit
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    trace.set_tracer_provider(TracerProvider())
    tracer = trace.get_tracer("worker")

    def shown(span):
        parent = span.parent
        return [f"{span.context.trace_id:032x}", f"{parent.span_id:016x}" if parent else None]

    @snakepit.command
    def own():
        with tracer.start_as_current_span("own") as span:
            return shown(span)

    @snakepit.command
    def inside():
        with snakepit.span("around") as around:
            with tracer.start_as_current_span("own") as span:
                return [*shown(span), around.traceparent[36:52]]

    @snakepit.command(batch=4)
    def together(value):
        with tracer.start_as_current_span("own") as span:
            return [shown(span) for _ in value]
"""
OTEL_ASYNC = OTEL + """
    import asyncio

    @snakepit.command
    async def own_async():
        await asyncio.sleep(0)
        with tracer.start_as_current_span("own") as span:
            await asyncio.sleep(0)
            return shown(span)
"""


@pytest.mark.parametrize("concurrency, source", [(1, OTEL), (3, OTEL), (3, OTEL_ASYNC)], ids=["serial", "threads", "tasks"])
def the_spans_of_opentelemetry_are_children_of_the_callers(concurrency, source):
    pytest.importorskip("opentelemetry.sdk.trace")
    with Worker(source, concurrency=concurrency) as worker:
        worker.ready()
        names = ["own"] + (["own_async"] if source is OTEL_ASYNC else [])
        for name in names:
            for trace in (PARENT, OTHER.replace("-00", "-01")):
                _, answer = _spans_until(worker, _send(worker, name, trace=trace))
                assert answer.value == [trace[3:35], trace[36:52]]
            _, answer = _spans_until(worker, _send(worker, name, trace=None))
            assert answer.value[1] is None, "nothing is left of the calls before"
        _, answer = _spans_until(worker, _send(worker, "inside"))
        assert answer.value[0] == PARENT[3:35] and answer.value[1] == answer.value[2]
        call = _send_many(worker, "together", [{"value": 1}, {"value": 2}], {"traces": [[PARENT], None]})
        assert _spans_until(worker, call)[1].value == [[True, [PARENT[3:35], PARENT[36:52]]]] * 2
