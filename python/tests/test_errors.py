"""Exceptions as callers see them."""

import datetime
import sys

import pytest
from harness import CallError, Worker

SOURCE = """
    import snakepit, sys

    class Oops(Exception):
        pass

    class Broken(Exception):
        def __str__(self):
            raise RuntimeError("no text")
        __repr__ = __str__

    class Quits(Exception):
        def __str__(self):
            sys.exit(3)

    @snakepit.command
    def plain():
        raise ValueError("no")

    @snakepit.command
    def handled(unused=None):
        return sys.exc_info()[1] and repr(sys.exc_info()[1])

    @snakepit.command
    def streamed():
        yield sys.exc_info()[1] and repr(sys.exc_info()[1])
        raise ValueError("no")

    @snakepit.command
    def own():
        raise Oops("mine")

    @snakepit.command
    def chain():
        try:
            try:
                raise KeyError("first")
            except KeyError as error:
                raise OSError("second") from error
        except OSError:
            raise Oops("third")

    @snakepit.command
    def hidden():
        try:
            raise KeyError("first")
        except KeyError:
            raise Oops("second") from None

    @snakepit.command
    def circle():
        a, b = Oops("a"), Oops("b")
        a.__cause__, b.__cause__ = b, a
        raise a

    @snakepit.command
    def long_chain():
        error = Oops("last")
        for i in range(500):
            following = Oops(str(i))
            following.__cause__ = error
            error = following
        raise error

    @snakepit.command
    def broken():
        raise Broken()

    @snakepit.command
    def quits():
        raise Quits()

    @snakepit.command
    def noted():
        error = Oops("x")
        error.__notes__ = ["one", Broken(), 3]
        raise error

    @snakepit.command
    def leave(code):
        sys.exit(code)

    @snakepit.command
    def interrupt():
        raise KeyboardInterrupt

    @snakepit.command
    def memory():
        raise MemoryError

    @snakepit.command
    def endless():
        return endless()

    @snakepit.command
    def surrogate():
        raise Oops("bad \\ud800 text")

    @snakepit.command
    def long():
        raise Oops("x" * 1000000)

    @snakepit.command
    def group():
        raise ExceptionGroup("both", [ValueError("left"), ExceptionGroup("inner", [KeyError("right")])])

    @snakepit.command
    def cannot_send():
        return {"rows": [{"price": 1}, {"price": object()}]}

    @snakepit.command
    def refuses():
        raise snakepit.BadArgument("must be even", "n")

    @snakepit.command
    def outside():
        import threading
        caught = []
        def look():
            try:
                snakepit.context()
            except snakepit.NoCall as error:
                caught.append(str(error))
        return caught

    @snakepit.command
    def fine():
        return "fine"

    @snakepit.command
    async def later():
        raise Oops("async")
"""


@pytest.fixture(scope="module", params=["serial", "concurrent", "async"])
def worker(request):
    source = SOURCE if request.param == "async" else SOURCE[: SOURCE.index("    @snakepit.command\n    async")]
    with Worker(source, concurrency=3 if request.param == "concurrent" else 1) as running:
        running.kind = request.param
        running.ready()
        yield running
        assert running.call("fine") == "fine"


def an_exception_has_type_message_and_the_users_frames(worker):
    error = worker.error("plain")
    assert (error["kind"], error["type"], error["message"]) == ("exception", "ValueError", "no")
    assert error["traceback"] == f'  File "{worker.path}", line 18, in plain\n    raise ValueError("no")\n'
    assert "cause" not in error


def an_exception_of_the_user_is_qualified_by_its_module(worker):
    assert worker.error("own")["type"] == "worker.Oops"


def a_chain_of_causes_is_told(worker):
    error = worker.error("chain")
    assert [error["message"], error["cause"]["message"]] == ["third", "second"]
    assert error["cause"]["cause"]["type"] == "KeyError"
    assert "cause" not in worker.error("hidden")


OPTIONS = [{"metadata": {"a": "b"}}, {"session": "s"}, {"trace": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}]


@pytest.mark.parametrize("options", [None, *OPTIONS], ids=lambda options: "-".join(options or ["none"]))
def an_exception_has_no_cause_in_the_sdk_whatever_the_options(worker, options):
    error = worker.error("plain", options=options)
    assert (error["message"], "cause" in error) == ("no", False)
    assert worker.call("handled", options=options) is None
    # A date-time takes the slow path through the codec.
    assert worker.call("handled", datetime.datetime(2026, 1, 1), options=options) is None


def an_exception_of_a_stream_has_no_cause_in_the_sdk(worker):
    with pytest.raises(CallError) as raised:
        worker.stream("streamed")
    assert (raised.value.items, "cause" in raised.value.map) == ([None], False)


def an_unknown_command_has_no_cause(worker):
    error = worker.error("plane")
    assert error["message"].startswith("this worker has no command 'plane'; did you mean plain")
    assert "cause" not in error


def a_circle_of_causes_ends(worker):
    error = worker.error("circle")
    assert [error["message"], error["cause"]["message"]] == ["a", "b"]
    assert "cause" not in error["cause"]


def a_very_long_chain_is_cut(worker):
    error = worker.error("long_chain")
    depth = 0
    while "cause" in error:
        error, depth = error["cause"], depth + 1
    assert depth == 16


def a_broken_text_is_harmless(worker):
    assert "RuntimeError" in worker.error("broken")["message"]
    assert "SystemExit" in worker.error("quits")["message"]


def the_notes_are_told(worker):
    notes = worker.error("noted")["notes"]
    assert (notes[0], notes[2]) == ("one", "3")
    assert "Broken" in notes[1]


@pytest.mark.parametrize("code", [0, 3, "bye", None])
def a_command_that_exits_fails_its_call_and_not_the_worker(worker, code):
    error = worker.error("leave", code=code)
    assert (error["kind"], error["type"]) == ("exception", "SystemExit")
    assert str(code) in error["message"]


def an_interrupt_or_the_end_of_memory_or_stack_fails_its_call_only(worker):
    assert worker.error("interrupt")["type"] == "KeyboardInterrupt"
    assert worker.error("memory")["type"] == "MemoryError"
    error = worker.error("endless")
    assert error["type"] == "RecursionError"
    assert "frames …" in error["traceback"] and len(error["traceback"]) < 10000


def a_message_that_cannot_be_sent_is_escaped_and_a_long_one_cut(worker):
    assert worker.error("surrogate")["message"] == "bad \\ud800 text"
    assert 60000 < len(worker.error("long")["message"]) < 70000


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with 3.11")
def an_exception_group_tells_its_parts(worker):
    trace = worker.error("group")["traceback"]
    assert "+ ValueError: left" in trace and "+ KeyError: 'right'" in trace


def a_result_that_cannot_be_sent_names_the_path(worker):
    error = worker.error("cannot_send")
    assert (error["kind"], error.get("path")) == ("bad_value", "result.rows[1].price"), error


def a_command_can_refuse_an_argument_itself(worker):
    error = worker.error("refuses")
    assert (error["kind"], error["parameter"], error["message"]) == ("bad_argument", "n", "must be even")


def an_async_exception_shows_the_users_frames(worker):
    if worker.kind == "async":
        error = worker.error("later")
        assert (error["type"], error["message"]) == ("worker.Oops", "async")
        assert "in later" in error["traceback"] and "tasks.py" not in error["traceback"]
