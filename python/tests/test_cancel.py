"""Cancels, stage by stage, and what a call can observe of them."""

import os
import select

import pytest
from harness import CANCEL_SIGNAL, STACK_SIGNAL, Worker

SOURCE = """
    import snakepit, time

    @snakepit.command
    def polite():
        context = snakepit.context()
        context.progress(0.5, "looking")
        while not context.cancelled:
            pass
        return "stopped"

    @snakepit.command
    def spin():
        snakepit.context().log("info", "spinning")
        while True:
            pass

    @snakepit.command
    def swallow():
        snakepit.context().log("info", "spinning")
        try:
            while True:
                pass
        except Exception:
            return "never"

    @snakepit.command
    def tidy():
        try:
            snakepit.context().log("info", "spinning")
            while True:
                pass
        except snakepit.Cancelled:
            return "tidied"

    @snakepit.command
    def nap():
        snakepit.context().log("info", "sleeping")
        time.sleep(60)

    @snakepit.command
    def waits():
        return snakepit.context().host.call("tool")

    @snakepit.command
    def chatty():
        context = snakepit.context()
        while True:
            context.log("debug", "x")

    @snakepit.command
    def echo(x):
        return x
"""
ASYNC = """
    import asyncio

    @snakepit.command
    async def anap():
        snakepit.context().log("info", "sleeping")
        await asyncio.sleep(60)

    @snakepit.command
    async def awaits():
        return await snakepit.context().host.call("tool")
"""


@pytest.fixture(params=["serial", "concurrent", "async"])
def worker(request):
    source = SOURCE + ASYNC if request.param == "async" else SOURCE
    with Worker(source, concurrency=2 if request.param == "concurrent" else 1) as running:
        running.kind = request.param
        running.signals = running.ready()["signals"]
        yield running
        assert running.call("echo", x="well") == "well"


def interrupt(worker, call):
    worker.send("CANCEL", call, 2)
    if worker.kind == "serial":
        worker.signal(worker.signals["cancel"])


def a_call_sees_that_it_is_cancelled(worker):
    call = worker.start("polite")
    assert worker.expect("PROGRESS", call).value == [0.5, "looking"]
    worker.send("CANCEL", call, 1)
    assert worker.expect("RESULT", call).value == "stopped"


@pytest.mark.parametrize("name", ["spin", "swallow"])
def a_busy_call_is_interrupted(worker, name):
    call = worker.start(name)
    worker.expect("LOG", call)
    interrupt(worker, call)
    error = worker.expect("ERROR", call).value
    assert error["kind"] == "cancelled"
    assert f"in {name}" in error["traceback"]


def a_call_may_tidy_up_and_answer(worker):
    call = worker.start("tidy")
    worker.expect("LOG", call)
    interrupt(worker, call)
    assert worker.expect("RESULT", call).value == "tidied"


def a_sleeping_call_is_interrupted(worker):
    if worker.kind != "serial":
        pytest.skip("a thread that sleeps in C cannot be interrupted; the host's later stages end it")
    call = worker.start("nap")
    worker.expect("LOG", call)
    interrupt(worker, call)
    assert worker.expect("ERROR", call).value["kind"] == "cancelled"


def an_async_call_is_interrupted_where_it_awaits(worker):
    if worker.kind != "async":
        pytest.skip("async commands only")
    call = worker.start("anap")
    worker.expect("LOG", call)
    interrupt(worker, call)
    assert worker.expect("ERROR", call).value["kind"] == "cancelled"


def a_call_that_waits_for_the_host_is_interrupted(worker):
    for name in ["waits", "awaits"] if worker.kind == "async" else ["waits"]:
        call = worker.start(name)
        number = worker.expect("HOST_CALL", call).value[0]
        interrupt(worker, call)
        assert worker.expect("HOST_CANCEL", call).value == [number]
        assert worker.expect("ERROR", call).value["kind"] == "cancelled"


def a_call_that_talks_all_the_time_is_interrupted_between_frames(worker):
    """The exception must not interrupt a write: every frame that arrives is whole."""
    for _ in range(20):
        call = worker.start("chatty")
        for _ in range(20):
            worker.expect("LOG", call)
        interrupt(worker, call)
        frame = worker.receive()
        while frame.kind == "LOG":
            frame = worker.receive()
        assert (frame.kind, frame.value["kind"]) == ("ERROR", "cancelled")


def a_cancel_of_an_unknown_call_is_ignored(worker):
    worker.send("CANCEL", 999, 1)
    worker.send("CANCEL", 999, 2)
    if worker.kind == "serial":
        worker.signal(CANCEL_SIGNAL)
    assert worker.call("echo", x=1) == 1


def a_call_that_waits_its_turn_is_cancelled_without_being_started(worker):
    calls = [worker.start("waits") for _ in range(2 if worker.kind == "concurrent" else 1)]
    asked = {worker.expect("HOST_CALL").call: None for _ in calls}
    queued = worker.start("echo", x="never")
    worker.send("CANCEL", queued, 1)
    for number, call in enumerate(asked, 1):
        worker.send("HOST_RESULT", call, [number, "done"])
    answers = {frame.call: frame for frame in (worker.receive() for _ in range(len(calls) + 1))}
    assert answers[queued].kind == "ERROR"
    assert answers[queued].value["kind"] == "cancelled"


def the_stacks_of_a_busy_worker_can_be_read():
    for concurrency in (1, 2):
        with Worker(SOURCE, stack=True, concurrency=concurrency) as running:
            signals = running.ready()["signals"]
            assert signals["stack"] == STACK_SIGNAL
            call = running.start("spin")
            running.expect("LOG", call)
            text = b""
            # A signal that comes while another thread still writes the stacks is lost. It is sent again if nothing
            # comes.
            for _ in range(200):
                running.signal(signals["stack"])
                while select.select([running.stack], [], [], 0.1)[0]:
                    text += os.read(running.stack, 65536)
                if text.count(b"in spin") >= 2:
                    break
            assert text.count(b"in spin") >= 2 and b"worker.py" in text


def a_signal_never_hurts_a_worker_that_is_not_cancelled():
    with Worker(SOURCE) as running:
        running.ready()
        for _ in range(300):
            call = running.start("echo", x=1)
            running.signal(CANCEL_SIGNAL)
            assert running.expect("RESULT", call).value == 1


def a_cancel_at_any_moment_is_answered_exactly_once():
    """The signal comes before, while and after the call runs. The worker lives on and answers each call once."""
    with Worker(SOURCE) as running:
        running.ready()
        for _ in range(300):
            call = running.start("echo", x=1)
            running.send("CANCEL", call, 2)
            running.signal(CANCEL_SIGNAL)
            frame = running.receive()
            assert frame.call == call
            assert frame.kind == "RESULT" or frame.value["kind"] == "cancelled"
