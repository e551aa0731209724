"""Several calls at once."""

import struct
import os
import time

from harness import Worker

SOURCE = """
    import snakepit, threading, time, asyncio

    barrier = threading.Barrier(4)

    @snakepit.command
    def meet():
        return barrier.wait(20) >= 0

    @snakepit.command
    def nap(s: float):
        time.sleep(s)
        return threading.current_thread().name

    @snakepit.command
    def who():
        return snakepit.context().call_id

    @snakepit.command
    def ask():
        return snakepit.context().host.call("t")
"""
ASYNC = """
    event = None

    @snakepit.on_start
    async def make():
        global event
        event = asyncio.Event()

    @snakepit.command
    async def wait():
        await asyncio.wait_for(event.wait(), 20)
        return snakepit.context().call_id

    @snakepit.command
    async def go():
        event.set()

    @snakepit.command
    async def in_a_thread():
        return await asyncio.to_thread(lambda: [snakepit.context().call_id, snakepit.context().host.call("t")])

    @snakepit.on_stop
    async def bye():
        await asyncio.sleep(0)
        print("stopped in the loop")
"""


def the_calls_of_several_threads_run_at_the_same_time():
    with Worker(SOURCE, concurrency=4) as worker:
        worker.ready()
        for _ in range(4):
            worker.start("meet")
        assert [worker.expect("RESULT").value for _ in range(4)] == [True] * 4
        began = time.monotonic()
        for _ in range(4):
            worker.start("nap", s=0.5)
        assert len({worker.expect("RESULT").value for _ in range(4)}) == 4
        assert time.monotonic() - began < 1.5


def no_more_calls_run_than_the_host_allows():
    with Worker(SOURCE, concurrency=2, slate=True) as worker:
        worker.ready()
        calls = [worker.start("ask") for _ in range(5)]
        first = [worker.expect("HOST_CALL") for _ in range(2)]
        worker.send("PING", 0, 1)
        worker.expect("PONG")
        assert struct.unpack_from("<3Q", os.pread(worker.slate, 24, 0))[0] == calls[1]
        for frame in first:
            worker.send("HOST_RESULT", frame.call, [frame.value[0], "x"])
        seen = {"RESULT": 0, "HOST_CALL": 0}
        while seen["RESULT"] < 5:
            frame = worker.receive()
            seen[frame.kind] += 1
            if frame.kind == "HOST_CALL":
                worker.send("HOST_RESULT", frame.call, [frame.value[0], "x"])
        assert struct.unpack_from("<3Q", os.pread(worker.slate, 24, 0)) == (calls[-1], 0, 5)


def the_tasks_of_one_loop_wait_for_each_other():
    with Worker(SOURCE + ASYNC, concurrency=3) as worker:
        worker.ready()
        waiting = [worker.start("wait"), worker.start("wait")]
        went = worker.start("go")
        answers = {frame.call: frame.value for frame in (worker.expect("RESULT") for _ in range(3))}
        assert answers == {waiting[0]: waiting[0], waiting[1]: waiting[1], went: None}


def a_thread_of_an_async_call_knows_the_call_and_may_block():
    with Worker(SOURCE + ASYNC, concurrency=1) as worker:
        worker.ready()
        call = worker.start("in_a_thread")
        number = worker.expect("HOST_CALL", call).value[0]
        worker.send("HOST_RESULT", call, [number, "fine"])
        assert worker.expect("RESULT", call).value == [call, "fine"]


def a_drained_worker_finishes_what_it_has():
    for source in (SOURCE, SOURCE + ASYNC):
        with Worker(source, concurrency=2) as worker:
            worker.ready()
            calls = [worker.start("ask") for _ in range(4)]
            asked = [worker.expect("HOST_CALL") for _ in range(2)]
            worker.send_empty("DRAIN")
            for frame in asked:
                worker.send("HOST_RESULT", frame.call, [frame.value[0], "x"])
            done = set()
            while len(done) < 4:
                frame = worker.receive()
                if frame.kind == "HOST_CALL":
                    worker.send("HOST_RESULT", frame.call, [frame.value[0], "x"])
                else:
                    done.add(frame.call)
            assert done == set(calls)
            worker.expect("BYE")
            assert worker.wait() == 0
            assert ("stopped in the loop" in worker.output()) == (source != SOURCE)


def a_worker_with_threads_ends_with_its_host():
    for source in (SOURCE, SOURCE + ASYNC):
        with Worker(source, concurrency=2) as worker:
            worker.ready()
            worker.start("nap", s=60)
            worker.socket.close()
            assert worker.wait() == 0


def a_worker_with_async_commands_does_one_call_at_a_time_in_order():
    with Worker(SOURCE + ASYNC, concurrency=1) as worker:
        worker.ready()
        first = worker.start("ask")
        number = worker.expect("HOST_CALL", first).value[0]
        second = worker.start("who")
        third = worker.start("go")
        worker.send("PING", 0, "p")
        worker.expect("PONG")
        worker.send("HOST_RESULT", first, [number, None])
        assert [worker.expect("RESULT").call for _ in range(3)] == [first, second, third]


PLAIN_BESIDE_ASYNC = """
    import os, snakepit, threading

    @snakepit.command
    def where():
        return threading.get_ident()

    @snakepit.command
    def read(path: str):
        if path:
            os.close(os.open(path, os.O_RDONLY))
        return path

    @snakepit.command
    async def where_async():
        return threading.get_ident()

    @snakepit.command
    async def read_async(path: str):
        return read(path)
"""


def start_many(worker, command, count, **named):
    """Sends all calls at once, like a host that knows them to be short."""
    first = worker.next_call + 1
    worker.next_call += count
    worker.send_bytes(b"".join(worker.frame("CALL", first + n, [command, named, None]) for n in range(count)))
    return list(range(first, first + count))


def the_plain_commands_beside_async_ones_stay_in_one_thread_and_in_order():
    with Worker(PLAIN_BESIDE_ASYNC) as worker:
        worker.ready()
        main = worker.call("where_async")
        calls = start_many(worker, "where", 200)
        threads = [worker.expect("RESULT", call).value for call in calls]
        assert main not in threads
        changes = sum(1 for one, other in zip(threads, threads[1:]) if one != other)
        assert changes < 20, f"{changes} of 200 calls were handed to another thread"


def no_answer_waits_for_a_call_that_is_unexpectedly_slow():
    for command in ("read", "read_async"):
        with Worker(PLAIN_BESIDE_ASYNC) as worker:
            worker.ready()
            fifo = os.path.join(worker.directory.name, "fifo")
            os.mkfifo(fifo)
            # Until the command is known to be quick, and beyond.
            for call in start_many(worker, command, 300, path=""):
                worker.expect("RESULT", call)
            quick = start_many(worker, command, 5, path="")
            slow = worker.start(command, path=fifo)
            for call in quick:
                worker.expect("RESULT", call)
            # The call waits until the pipe is opened for writing.
            with open(fifo, "w"):
                assert worker.expect("RESULT", slow).value == fifo


def the_contexts_of_async_calls_are_apart_however_quickly_they_come():
    source = """
        import contextvars, snakepit

        seen = contextvars.ContextVar("seen", default=None)

        @snakepit.command
        async def leave(n: int):
            before = seen.get()
            seen.set(n)
            return [before, snakepit.context().call_id]
    """
    with Worker(source, concurrency=4) as worker:
        worker.ready()
        for call in start_many(worker, "leave", 100, n=1):
            assert worker.expect("RESULT", call).value == [None, call]
