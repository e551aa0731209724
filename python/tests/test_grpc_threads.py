"""The threads of a gRPC server: a few for short calls, and as many as are held up."""

from queue import SimpleQueue
from threading import Barrier, Event

from snakepit.grpc_threads import AT_ONCE, Threads

SOON = 30


def what_is_held_up_does_not_hold_up_the_others():
    threads = Threads()
    most = AT_ONCE * 4
    barrier = Barrier(most + 1)
    for _ in range(most):
        threads.submit(barrier.wait, SOON)
    # Passed only if all of them run at the same time.
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
