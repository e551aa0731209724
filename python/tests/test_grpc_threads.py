"""The threads of a gRPC server: a few for short calls, and one for each call that holds a thread."""

from queue import SimpleQueue
from threading import Barrier, Event
from time import monotonic

from snakepit.grpc.threads import FEW, Threads

SOON = 30


class Looks:
    """Replaces the lock on which the watcher of the threads waits between two checks, and reports when it has
    checked so often."""

    def __init__(self, threads, most):
        self.wait = threads.never.acquire
        self.left = most
        self.over = Event()
        threads.never = self

    def acquire(self, *args):
        self.left -= 1
        if self.left == 0:
            self.over.set()
        return self.wait(*args)


def until(condition):
    deadline = monotonic() + SOON
    while not condition():
        assert monotonic() < deadline
        Event().wait(0.001)


def a_call_that_is_held_up_does_not_hold_up_the_others_and_its_thread_goes_afterwards():
    threads = Threads()
    most = FEW * 4
    barrier = Barrier(most + 1)
    wait = threads.holding(lambda request, context: barrier.wait(SOON))
    for _ in range(most):
        threads.submit(wait, None, None)
    # Passed only if all of them run at the same time.
    barrier.wait(SOON)
    until(lambda: threads.started == FEW)
    assert not threads.held


def a_stream_has_its_thread_until_its_end():
    threads = Threads()
    go = Event()
    stream = threads.holding_on(lambda request, context: iter(lambda: go.wait(SOON), True))
    jobs = [threads.submit(lambda: list(stream(None, None))) for _ in range(FEW)]
    over = SimpleQueue()
    threads.submit(over.put, "beside them")
    assert over.get(timeout=SOON) == "beside them"
    go.set()
    for job in jobs:
        job.add_done_callback(over.put)
        over.get(timeout=SOON)
    until(lambda: not threads.held)


def what_takes_its_time_without_being_held_has_no_more_threads():
    threads = Threads()
    looks = Looks(threads, 10)
    go = Event()
    over = SimpleQueue()
    for number in range(FEW + 1):
        threads.submit(lambda number: (go.wait(SOON), over.put(number)), number)
    assert looks.over.wait(SOON)
    assert threads.started == FEW
    go.set()
    assert sorted(over.get(timeout=SOON) for _ in range(FEW + 1)) == list(range(FEW + 1))


def what_takes_too_long_has_one_more_thread_all_the_same():
    threads = Threads()
    barrier = Barrier(FEW + 2)
    for _ in range(FEW + 1):
        threads.submit(barrier.wait, SOON)
    barrier.wait(SOON)


def a_few_threads_do_many_short_jobs():
    threads = Threads()
    done = SimpleQueue()
    for number in range(500):
        threads.submit(done.put, number)
    assert sorted(done.get(timeout=SOON) for _ in range(500)) == list(range(500))


def a_job_tells_of_its_end_whoever_asks_when():
    threads = Threads()
    go, over = Event(), Event()
    before = threads.submit(go.wait, SOON)
    before.add_done_callback(lambda job: over.set())
    assert not over.is_set()
    go.set()
    assert over.wait(SOON)
    after = []
    before.add_done_callback(after.append)
    assert after == [before]
