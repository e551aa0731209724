"""More tool calls than the host allows at a time: they wait in the worker, and all are answered."""

import pytest
from harness import Worker

MOST = 1024 - 1024 // 8
MOST_BYTES = (16 << 20) - (16 << 20) // 8

THREADS = """
    import snakepit, threading

    @snakepit.command
    def ask_together(times):
        host = snakepit.context().host
        answers = [None] * times

        def ask(n):
            answers[n] = host.call("double", n=n)

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    @snakepit.command
    def ask():
        return snakepit.context().host.call("once")
"""
TASKS = """
    import asyncio, snakepit

    @snakepit.command
    async def ask_together(times):
        host = snakepit.context().host
        return await asyncio.gather(*(host.call("double", n=n) for n in range(times)))

    @snakepit.command
    async def send_together(times, size):
        host = snakepit.context().host
        return await asyncio.gather(*(host.call("length", bytes(size)) for n in range(times)))

    @snakepit.command
    async def ask():
        return await snakepit.context().host.call("once")

    @snakepit.command
    async def streams(times):
        host = snakepit.context().host
        opened = [host.stream("rows") for n in range(times)]
        return await asyncio.gather(*(stream.__anext__() for stream in opened))

    left = []
    said = []

    @snakepit.command
    async def leaves_some_behind(times):
        host = snakepit.context().host

        async def ask():
            try:
                await host.call("never")
            except RuntimeError as error:
                said.append(str(error))

        left.extend(asyncio.ensure_future(ask()) for n in range(times))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return host.call is not None

    @snakepit.command
    async def what_they_said():
        return said
"""


@pytest.fixture(params=["threads", "tasks"])
def worker(request):
    with Worker(THREADS if request.param == "threads" else TASKS, concurrency=4, max_frame=2 << 20) as running:
        running.kind = request.param
        running.ready()
        yield running


@pytest.fixture
def tasks():
    with Worker(TASKS, concurrency=4, max_frame=2 << 20) as running:
        running.ready()
        yield running


def fill(worker, command, **args):
    """Starts a call that makes more requests than allowed. Returns the call and the requests that it has sent by
    then."""
    call = worker.start(command, **args)
    return call, [worker.expect("HOST_CALL", call).value for _ in range(MOST)]


def answer(worker, call, asked):
    number, tool, args = asked[:3]
    worker.send("HOST_RESULT", call, [number, 2 * args["n"] if tool == "double" else None])


def no_more_are_asked_for_than_the_host_allows_and_all_are_answered(worker):
    times = MOST + 200 if worker.kind == "threads" else 5000
    call, under_way = fill(worker, "ask_together", times=times)
    worker.send("PING", 0, "are there more?")
    worker.expect("PONG")
    for _ in range(times - MOST):
        answer(worker, call, under_way.pop(0))
        under_way.append(worker.expect("HOST_CALL", call).value)
    for asked in under_way:
        answer(worker, call, asked)
    assert worker.expect("RESULT", call).value == [2 * n for n in range(times)]


def what_they_bring_together_is_limited_too(tasks):
    size, times = 1 << 20, 40
    call = tasks.start("send_together", times=times, size=size)
    fit = MOST_BYTES // size - 1  # each needs some bytes more
    under_way = [tasks.expect("HOST_CALL", call).value[0] for _ in range(fit)]
    tasks.send("PING", 0, "are there more?")
    tasks.expect("PONG")
    for _ in range(times - fit):
        tasks.send("HOST_RESULT", call, [under_way.pop(0), size])
        under_way.append(tasks.expect("HOST_CALL", call).value[0])
    for number in under_way:
        tasks.send("HOST_RESULT", call, [number, size])
    assert tasks.expect("RESULT", call).value == [size] * times


def a_nested_call_does_not_wait_for_those_that_wait_for_it(worker):
    times = MOST + 10
    call, under_way = fill(worker, "ask_together", times=times)
    other = worker.start("ask")
    worker.send("PING", 0, "it waits")
    worker.expect("PONG")
    nested = worker.start("ask", options={"nested": call})
    number = worker.expect("HOST_CALL", nested).value[0]
    worker.send("HOST_RESULT", nested, [number, "at once"])
    assert worker.expect("RESULT", nested).value == "at once"
    # The order of those that wait is up to them.
    under_way = [(call, asked) for asked in under_way]
    for _ in range(times + 1 - MOST):
        answer(worker, *under_way.pop(0))
        frame = worker.expect("HOST_CALL")
        under_way.append((frame.call, frame.value))
    for asked in under_way:
        answer(worker, *asked)
    results = [worker.expect("RESULT") for _ in range(2)]
    assert {frame.call: frame.value for frame in results} == {call: [2 * n for n in range(times)], other: None}


def a_call_that_is_cancelled_while_its_tools_wait_makes_room(tasks):
    call, under_way = fill(tasks, "ask_together", times=5000)
    tasks.send("CANCEL", call, 2)
    ended = {tasks.expect("HOST_CANCEL", call).value[0] for _ in range(MOST)}
    assert ended == {asked[0] for asked in under_way}, "and nothing that was not sent"
    assert tasks.expect("ERROR", call).value["kind"] == "cancelled"
    call, under_way = fill(tasks, "ask_together", times=MOST)
    for asked in under_way:
        answer(tasks, call, asked)
    assert len(tasks.expect("RESULT", call).value) == MOST


def what_a_call_leaves_behind_takes_up_no_room(tasks):
    call, _ = fill(tasks, "leaves_some_behind", times=MOST + 10)
    assert tasks.expect("RESULT", call).value is True
    # The host has ended them, and answers none.
    following, under_way = fill(tasks, "ask_together", times=MOST)
    for asked in under_way:
        answer(tasks, following, asked)
    tasks.expect("RESULT", following)
    assert tasks.call("what_they_said") == [f"call {call} is over"] * 10


def a_stream_does_not_wait_and_a_call_behind_streams_alone_is_the_hosts_matter(tasks):
    call = tasks.start("streams", times=1100)
    numbers = [tasks.expect("HOST_CALL", call).value[0] for _ in range(1100)]
    other = tasks.start("ask")
    asked = tasks.expect("HOST_CALL", other).value[0]
    error = {"kind": "refused", "message": "too many"}
    tasks.send("HOST_ERROR", other, [asked, error])
    assert "too many" in tasks.expect("ERROR", other).value["message"]
    for number in numbers:
        tasks.send("HOST_ITEM", call, [number, 1])
    while (frame := tasks.receive()).kind == "HOST_CANCEL":
        pass
    assert frame.value == [1] * 1100
