"""Streams and credit, and that no item is left unsent."""

import os
import time

import pytest
from harness import MUCH, CallError, Worker

SOURCE = """
    import snakepit, time, threading, os

    @snakepit.command
    def count(n: int):
        for i in range(n):
            yield i

    @snakepit.command
    def letters(sizes: list):
        for size in sizes:
            yield "x" * size

    @snakepit.command
    def blobs(sizes: list, path: str):
        for size in sizes:
            with open(path, "a") as file:
                file.write(".")
            yield bytes(size)

    @snakepit.command
    def plain(x):
        return x

    @snakepit.command
    def fails(n: int):
        yield from range(n)
        raise ValueError("enough")

    @snakepit.command
    def unsendable():
        yield 1
        yield object()
        yield 3

    @snakepit.command
    def big(n: int, size: int):
        buffer = bytearray(size)
        for i in range(n):
            buffer[:] = bytes([i]) * size
            yield buffer

    @snakepit.command
    def mixed(n: int):
        row = []
        for i in range(n):
            yield i
            if i % 50 == 49:
                row.append(i)
                yield row
                yield 1 << 70
                yield "é" * 1000
                yield None

    @snakepit.command
    def pauses(path: str):
        yield from range(100)
        time.sleep(0.05)
        yield from range(100, 103)
        with open(path):
            pass
        yield "end"

    @snakepit.command
    def nests(n: int):
        for i in range(n):
            yield i
            if i == 40:
                snakepit.context().host.call("t")

    @snakepit.command
    def reports(n: int):
        for i in range(n):
            if i == 40:
                snakepit.context().progress(0.5)
            yield i

    @snakepit.command
    def cleans(path: str):
        try:
            while True:
                yield 1
        except BaseException as error:
            with open(path, "w") as file:
                file.write(type(error).__name__)
            raise

    @snakepit.command
    def stalls(n: int, tool: str):
        for i in range(n):
            yield i
        snakepit.context().host.call(tool)
        yield "end"

    @snakepit.command
    def quick(x):
        return x

    @snakepit.command
    def slow_once(path: str):
        if os.path.exists(path):
            for line in open(path + ".fifo"):
                pass
        return "slow"
"""
ASYNC = """
    @snakepit.command
    async def acount(n: int):
        for i in range(n):
            yield i

    @snakepit.command
    async def aletters(sizes: list):
        for size in sizes:
            yield "x" * size

    @snakepit.command
    async def ablobs(sizes: list, path: str):
        for size in sizes:
            with open(path, "a") as file:
                file.write(".")
            yield bytes(size)

    @snakepit.command
    async def acleans(path: str):
        try:
            while True:
                yield 1
        except BaseException as error:
            with open(path, "w") as file:
                file.write(type(error).__name__)
            raise

    @snakepit.command
    async def aplain(x):
        return x
"""


@pytest.fixture(scope="module", params=["serial", "serial, shared frames", "concurrent", "async"])
def worker(request):
    source = SOURCE + ASYNC if request.param == "async" else SOURCE
    features = ["items", "others"] if "shared" in request.param else None
    with Worker(source, concurrency=2 if request.param == "concurrent" else 1, features=features) as running:
        running.kind = request.param.partition(",")[0]
        running.ready()
        yield running


def names(worker, plain="count"):
    return [plain, "a" + plain] if worker.kind == "async" else [plain]


def a_generator_streams_its_items_and_ends(worker):
    for name in names(worker):
        assert worker.stream(name, n=0) == []
        assert worker.stream(name, n=500) == list(range(500))


def a_plain_command_called_as_a_stream_gives_one_item(worker):
    for name in names(worker, "plain"):
        assert worker.stream(name, x="one") == ["one"]


def a_stream_called_plainly_is_an_error_of_its_kind(worker):
    for name in names(worker):
        assert worker.error(name, n=1)["kind"] == "streaming"


def no_more_items_come_than_there_is_credit(worker):
    for name in names(worker):
        call = worker.start(name, n=10, options={"stream": [3, MUCH]})
        assert [worker.expect("ITEM", call).value for _ in range(3)] == [0, 1, 2]
        worker.send("PING", 0, "still here")
        assert worker.expect("PONG").value == "still here"
        worker.send("CREDIT", call, [2, 0])
        assert [worker.expect("ITEM", call).value for _ in range(2)] == [3, 4]
        worker.send("CREDIT", call, [100, 0])
        assert [worker.expect("ITEM", call).value for _ in range(5)] == [5, 6, 7, 8, 9]
        worker.expect("END", call)


def items_and_nothing_more(worker, call, sizes):
    """Expects the next items to have these sizes. Then the worker must wait, but live."""
    assert [len(worker.expect("ITEM", call).value) for _ in sizes] == sizes
    worker.send("PING", 0, "still here")
    assert worker.expect("PONG").value == "still here"


def a_stream_stops_at_its_bytes_and_a_longer_item_passes_alone(worker):
    for name in names(worker, "letters"):
        # An item of 48 letters is 50 bytes long, and one of 1000 letters 1003.
        call = worker.start(name, sizes=[48, 48, 48, 1000, 48, 48], options={"stream": [100, 100]})
        items_and_nothing_more(worker, call, [48, 48])
        worker.send("CREDIT", call, [0, 51])
        items_and_nothing_more(worker, call, [48, 1000])
        worker.send("CREDIT", call, [50, 1002])
        items_and_nothing_more(worker, call, [])
        worker.send("CREDIT", call, [0, 1])
        items_and_nothing_more(worker, call, [48])
        worker.send("CREDIT", call, [0, 50])
        assert len(worker.expect("ITEM", call).value) == 48
        worker.expect("END", call)


def large_items_are_made_one_at_a_time(worker, tmp_path):
    size = 3 << 20
    for name in names(worker, "blobs"):
        made = tmp_path / name
        call = worker.start(name, sizes=[size] * 5, path=str(made), options={"stream": [1000, 1 << 20]})
        for number in range(5):
            items_and_nothing_more(worker, call, [size])
            # The next item may be made, and waits for its credit.
            assert len(made.read_text()) <= number + 2
            # The length of the head, the reference in the head, and the bytes.
            worker.send("CREDIT", call, [1, 4 + 10 + size])
        worker.expect("END", call)


def a_credit_of_another_form_is_a_fault():
    for credit in (5, [5], [5, None], [1, 2, 3]):
        with Worker(SOURCE) as running:
            running.ready()
            call = running.start("count", n=10, options={"stream": [1, MUCH]})
            running.expect("ITEM", call)
            running.send("CREDIT", call, credit)
            assert "[items, bytes]" in running.expect("FAULT").value


def a_stream_without_first_credit_waits_for_it(worker):
    call = worker.start("plain", x=1, options={"stream": [0, 0]})
    worker.send("PING", 0, 1)
    worker.expect("PONG")
    worker.send("CREDIT", call, [1, 1])
    assert worker.expect("ITEM", call).value == 1
    worker.expect("END", call)


def a_credit_that_comes_before_the_stream_has_begun_counts(worker):
    # An existing thread lets the reader read on; a thread that is being started does not.
    assert worker.stream("plain", x=1) == [1]
    worker.next_call += 1
    call = worker.next_call
    message = ["plain", {"x": 1}, None, {"stream": [0, 0]}]
    # In one write, so that the second frame is read before a thread or a task has begun with the first.
    worker.send_bytes(worker.frame("CALL", call, message) + worker.frame("CREDIT", call, [1, 1]))
    assert worker.expect("ITEM", call).value == 1
    worker.expect("END", call)


def an_exception_in_a_stream_comes_after_its_items(worker):
    with pytest.raises(CallError) as caught:
        worker.stream("fails", n=3)
    assert caught.value.items == [0, 1, 2]
    assert caught.value.map["message"] == "enough"


def an_item_that_cannot_be_sent_ends_the_stream_with_its_path(worker):
    with pytest.raises(CallError) as caught:
        worker.stream("unsendable")
    assert caught.value.items == [1]
    assert (caught.value.map["kind"], caught.value.map["path"]) == ("bad_value", "item")


def a_buffer_that_is_used_again_is_sent_as_it_was(worker):
    items = worker.stream("big", n=20, size=20000)
    assert items == [bytes([i]) * 20000 for i in range(20)]


def items_of_all_kinds_keep_their_order_and_what_they_were(worker):
    expected, row = [], []
    for i in range(500):
        expected.append(i)
        if i % 50 == 49:
            row = [*row, i]
            expected += [row, 1 << 70, "é" * 1000, None]
    assert worker.stream("mixed", n=500) == expected


def quick_items_share_frames_if_the_host_takes_that():
    for features, shares in ((None, False), ([], False), (["other"], False), ("items", False), (["items"], True)):
        with Worker(SOURCE, features=features) as running:
            running.ready()
            assert running.stream("count", n=1000) == list(range(1000))
            assert (0 < running.shared_frames < 200) is shares


def what_a_generator_reports_comes_between_its_items():
    with Worker(SOURCE, features=["items"]) as running:
        running.ready()
        call = running.start("reports", n=50, options={"stream": [1000, MUCH]})
        seen = [running.receive() for _ in range(52)]
        assert [frame.kind for frame in seen] == ["ITEM"] * 40 + ["PROGRESS"] + ["ITEM"] * 10 + ["END"]
        assert all(frame.call == call for frame in seen)


def no_item_lies_behind_a_generator_that_pauses_more_than_once(tmp_path):
    """The flusher, which sends what waits, sleeps after the first pause."""
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    with Worker(SOURCE, features=["items"]) as running:
        running.ready()
        call = running.start("pauses", path=path, options={"stream": [1000, MUCH]})
        assert [running.expect("ITEM", call).value for _ in range(103)] == list(range(103))
        with open(path, "w"):
            pass
        assert running.expect("ITEM", call).value == "end"
        running.expect("END", call)


def a_stream_inside_a_stream_keeps_its_items():
    with Worker(SOURCE, features=["items"]) as running:
        running.ready()
        outer = running.start("nests", n=50, options={"stream": [1000, MUCH]})
        kinds = [running.receive() for _ in range(42)]
        assert [frame.kind for frame in kinds] == ["ITEM"] * 41 + ["HOST_CALL"]
        inner = running.start("count", n=30, options={"stream": [1000, MUCH], "nested": outer})
        assert [running.expect("ITEM", inner).value for _ in range(30)] == list(range(30))
        running.expect("END", inner)
        running.send("HOST_RESULT", outer, [kinds[-1].value[0], None])
        assert [running.expect("ITEM", outer).value for _ in range(9)] == list(range(41, 50))
        running.expect("END", outer)


@pytest.mark.parametrize("stage", [1, 2])
def a_cancelled_stream_is_told_and_cleaned_up(worker, stage, tmp_path):
    for name in names(worker, "cleans"):
        path = str(tmp_path / name)
        call = worker.start(name, path=path, options={"stream": [5, MUCH]})
        for _ in range(5):
            worker.expect("ITEM", call)
        worker.send("CANCEL", call, stage)
        frame = worker.expect("ERROR", call)
        assert frame.value["kind"] == "cancelled"
        # Stage 2 may find an async generator where it awaits. Then asyncio reports it.
        assert open(path).read() in ("Cancelled", "CancelledError", "GeneratorExit")


def a_cancel_ends_a_stream_that_has_credit_for_ever(worker, tmp_path):
    call = worker.start("cleans", path=str(tmp_path / "x"), options={"stream": [1 << 60, 1 << 60]})
    worker.expect("ITEM", call)
    worker.send("CANCEL", call, 1)
    while True:
        frame = worker.receive()
        if frame.kind == "ERROR":
            break
        assert frame.kind == "ITEM"
    assert frame.value["kind"] == "cancelled"


def no_item_lies_behind_a_generator_that_stalls(worker):
    """Quick items are gathered, but are sent even if the generator then waits."""
    call = worker.start("stalls", n=20, tool="t", options={"stream": [100, MUCH]})
    seen = []
    while len(seen) < 21:
        frame = worker.receive()
        seen.append(frame.value if frame.kind == "ITEM" else frame.kind)
    assert seen == [*range(20), "HOST_CALL"]
    worker.send("HOST_RESULT", call, [frame.value[0], None])
    assert worker.expect("ITEM", call).value == "end"
    worker.expect("END", call)


def no_answer_lies_behind_a_slow_call(worker, tmp_path):
    """Answers of quick calls arrive although the next call, which was quick so far, blocks. It cannot end before
    they arrive."""
    if worker.kind != "serial":
        pytest.skip("answers are gathered by the serial loop")
    path = tmp_path / "slow"
    for _ in range(3):
        first = worker.next_call + 1
        worker.next_call += 100
        worker.send_bytes(b"".join(
            worker.frame("CALL", first + i, ["slow_once", [str(path)], None]) for i in range(100)))
        for i in range(100):
            worker.expect("RESULT", first + i)
    os.mkfifo(str(path) + ".fifo")
    path.write_text("")
    first = worker.next_call + 1
    worker.next_call += 3
    calls = [["quick", [1], None], ["quick", [2], None], ["slow_once", [str(path)], None]]
    worker.send_bytes(b"".join(worker.frame("CALL", first + i, call) for i, call in enumerate(calls)))
    began = time.monotonic()
    assert worker.expect("RESULT", first).value == 1
    assert worker.expect("RESULT", first + 1).value == 2
    assert time.monotonic() - began < 5
    with open(str(path) + ".fifo", "w"):
        pass
    assert worker.expect("RESULT", first + 2).value == "slow"
