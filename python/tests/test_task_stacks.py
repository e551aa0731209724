"""The stacks of async code: a worker reports them for each call, through everything that the call awaits."""

import os
import select
import sys
import time

import pytest
from harness import LIMIT, Worker

SOURCE = """
    import asyncio, snakepit, threading, time

    async def innermost():
        await asyncio.Event().wait()

    async def numbers():
        yield 1
        await innermost()
        yield 2

    class Wrapped:
        def __await__(self):
            return (yield from innermost().__await__())

    async def middle(how):
        if how == "generator":
            async for _ in numbers():
                pass
        elif how == "object":
            await Wrapped()
        else:
            await innermost()

    @snakepit.command
    async def waits(how="call"):
        snakepit.context().log("info", "here")
        await middle(how)

    @snakepit.command
    async def gathers():
        snakepit.context().log("info", "here")
        await asyncio.gather(middle("call"), middle("call"))

    @snakepit.command
    async def blocks():
        snakepit.context().log("info", "here")
        spin(time.monotonic() + 60)

    def spin(end):
        while time.monotonic() < end:
            pass

    @snakepit.command
    def runs_a_loop():
        snakepit.context().log("info", "here")
        asyncio.run(middle("call"))

    @snakepit.command
    def runs_a_loop_in_a_thread():
        thread = threading.Thread(target=quiet)
        thread.start()
        snakepit.context().log("info", "here")
        thread.join()

    def quiet():
        asyncio.run(middle("call"))

    @snakepit.command
    def echo(x):
        return x
"""
SYNC = SOURCE.replace("async def waits", "def waits").replace("await middle(how)", "pass")
for _name in ("gathers", "blocks"):
    SYNC = SYNC.replace(f"@snakepit.command\n    async def {_name}", f"async def {_name}")


def tasks_of(running, wanted="", at_rest=0):
    """Returns what the worker reports, without the stacks of threads, once it contains the wanted text and so many
    tasks are in `wait`. Until then, a task may be on its way there.
    """
    end = time.monotonic() + LIMIT
    while True:
        # A signal that comes just before the main thread begins to wait takes effect only with the next one.
        text = b""
        while b"\x03" not in text:
            assert time.monotonic() < end, "nothing is told"
            running.signal(running.signals["tasks"])
            while b"\x03" not in text and select.select([running.stack], [], [], 0.05)[0]:
                text += os.read(running.stack, 65536)
        told = text[text.index(b"\x02") + 1 : text.index(b"\x03")].decode()
        if wanted in told and sum(frames[:1] == ["wait"] for frames in places(told).values()) >= at_rest:
            return told
        assert time.monotonic() < end, told
        # Lets the worker run between two requests.
        select.select([], [], [], 0.001)


def started(source, *calls, concurrency=1, env=None):
    running = Worker(source, stack=True, concurrency=concurrency, env=env)
    running.signals = running.ready()["signals"]
    numbers = []
    for command, args in calls:
        numbers.append(running.start(command, **args))
        running.expect("LOG", numbers[-1])
    return running, numbers


def places(text):
    """Returns the functions of each task, innermost first."""
    found = {}
    for line in text.splitlines():
        if line.startswith("Task"):
            frames = found[line.split(" (most")[0]] = []
        elif line.startswith("  File"):
            frames.append(line.split(" in ")[-1])
    return found


@pytest.mark.parametrize("how, between", [("call", ["middle"]), ("generator", ["numbers", "middle"]),
                                          ("object", ["__await__", "middle"])])
def each_coroutine_that_is_awaited_is_told(how, between):
    running, (call,) = started(SOURCE, ("waits", {"how": how}))
    with running:
        text = tasks_of(running, at_rest=1)
        assert places(text) == {f"Task of call {call}: waits": ["wait", "innermost", *between, "waits"]}, text
        assert 'worker.py", line 5 in innermost' in text


def each_call_has_its_own():
    running, (first, second) = started(SOURCE, ("waits", {"how": "call"}), ("waits", {"how": "object"}), concurrency=2)
    with running:
        tasks_of(running, "in __await__")
        found = places(tasks_of(running))
        assert "__await__" not in found[f"Task of call {first}: waits"]
        assert "__await__" in found[f"Task of call {second}: waits"]


def the_tasks_that_a_call_waits_for_are_told_too():
    running, (call,) = started(SOURCE, ("gathers", {}))
    with running:
        text = tasks_of(running, at_rest=2)
        found = places(text)
        assert found.pop(f"Task of call {call}: gathers") == ["gathers"], text
        assert list(found.values()) == [["wait", "innermost", "middle"]] * 2, text
        # Tasks reveal their context since Python 3.12. Before, the call of a task is unknown.
        of = f" of call {call}" if sys.version_info >= (3, 12) else ""
        assert all(name.startswith(f"Task{of}: Task-") for name in found), text
        waits = [line for line in text.splitlines() if line.startswith("  waits for ")]
        assert len(waits) == 1 and waits[0].count("Task-") == 2, text


def a_call_that_blocks_the_loop_is_told_where_it_is():
    running, (call,) = started(SOURCE, ("blocks", {}))
    with running:
        text = tasks_of(running, "in spin")
        assert places(text) == {f"Task of call {call}: blocks": ["spin", "blocks"]}, text


@pytest.mark.parametrize("command", ["runs_a_loop", "runs_a_loop_in_a_thread"])
@pytest.mark.parametrize("concurrency", [1, 2])
def the_loops_of_sync_commands_are_told_without_a_call(command, concurrency):
    running, _ = started(SYNC, (command, {}), concurrency=concurrency)
    with running:
        text = tasks_of(running, at_rest=1)
        assert ["wait", "innermost", "middle"] in places(text).values(), text


def a_worker_without_tasks_tells_none_and_lives_on():
    with Worker("import snakepit\n@snakepit.command\ndef echo(x): return x\n", stack=True) as running:
        running.signals = running.ready()["signals"]
        for number in range(100):
            assert tasks_of(running) == ""
            assert running.expect("RESULT", running.start("echo", x=number)).value == number


def a_question_that_comes_again_and_again_hurts_nobody():
    running, _ = started(SOURCE, ("waits", {}), concurrency=2)
    with running:
        for number in range(100):
            call = running.start("echo", x=number)
            assert "in waits" in tasks_of(running)
            assert running.expect("RESULT", call).value == number


def a_thousand_frames_are_told_as_far_as_they_fit():
    many = """
        import asyncio, snakepit

        async def deep(depth):
            if depth:
                await deep(depth - 1)
            else:
                await asyncio.Event().wait()

        @snakepit.command
        async def many():
            others = [asyncio.ensure_future(deep(200)) for _ in range(100)]
            await asyncio.sleep(0)
            snakepit.context().log("info", "here")
            await asyncio.wait(others)
    """
    running, (call,) = started(many, ("many", {}))
    with running:
        text = tasks_of(running, at_rest=1)
        assert text.startswith(f"Task of call {call}: many") and "  ...\n" in text
        assert len(text) <= 32 * 1024


def an_event_loop_of_others_does_not_matter():
    pytest.importorskip("uvloop")
    running, (call,) = started("import uvloop; uvloop.install()\n" + SOURCE.replace("\n    ", "\n"), ("waits", {}))
    with running:
        text = tasks_of(running, at_rest=1)
        assert places(text) == {f"Task of call {call}: waits": ["wait", "innermost", "middle", "waits"]}, text
