"""The threads in which a gRPC server runs its calls.

Owns how many there are. The executor of the standard library starts one more whenever none is idle at the moment, so many
short calls at a time would be done by as many threads, which then fight for the interpreter. Here a few are enough, unless
they are held up: then there is one more every few milliseconds. It is what grpcio takes for an executor, and no more.
"""

from _queue import SimpleQueue
from _thread import allocate_lock, start_new_thread
from threading import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

# So many are started as they are needed. Those that only wait (Link, streams, async calls) are counted as held up.
AT_ONCE = 4
# In this time, somebody takes a job, or all are held up.
PATIENCE = 0.002


class Job:
    """One call, and what grpcio wants to do after it."""

    __slots__ = ("function", "args", "lock", "is_done", "callback")

    def __init__(self, function: "Callable[..., Any]", args: "Any") -> None:
        self.function = function
        self.args = args
        self.lock = allocate_lock()
        self.is_done = False
        self.callback: "Optional[Callable[[Any], Any]]" = None

    def add_done_callback(self, callback: "Callable[[Any], Any]") -> None:
        with self.lock:
            if not self.is_done:
                self.callback = callback
                return
        callback(self)

    def run(self) -> None:
        try:
            self.function(*self.args)
        finally:
            with self.lock:
                self.is_done = True
            if self.callback is not None:
                self.callback(self)


class Threads:
    """Runs jobs in the order in which they come."""

    def __init__(self) -> None:
        self.jobs: "SimpleQueue[Job]" = SimpleQueue()
        # Guards the two counts.
        self.lock = allocate_lock()
        self.started = 0
        # Threads that wait, less the jobs that wait for them.
        self.free = 0
        self.taken = 0
        self.is_watched = False
        self.called = allocate_lock()
        self.called.acquire()
        self.never = allocate_lock()
        self.never.acquire()

    def submit(self, function: "Callable[..., Any]", *args: "Any") -> Job:
        job = Job(function, args)
        self.jobs.put(job)
        with self.lock:
            self.free -= 1
            short = self.free < 0
            needs_thread = short and self.started < AT_ONCE
            if needs_thread:
                self.started += 1
        if needs_thread:
            self._start()
        elif short:
            self._watch()
        return job

    def _start(self) -> None:
        Thread(target=self._work, name="snakepit-grpc", daemon=True).start()

    def _work(self) -> None:
        jobs = self.jobs
        while True:
            with self.lock:
                self.free += 1
            job = jobs.get()
            self.taken += 1
            job.run()
            del job

    def _watch(self) -> None:
        if not self.is_watched:
            self.is_watched = True
            start_new_thread(self._see_to_jobs, ())
        elif self.called.locked():
            try:
                self.called.release()
            except RuntimeError:  # another thread was faster
                pass

    def _see_to_jobs(self) -> None:
        """Starts one more thread whenever jobs wait and nobody takes any."""
        while True:
            seen = self.taken
            self.never.acquire(True, PATIENCE)
            if self.jobs.empty():
                # Looked at again after this: who submits in between calls.
                self.called.acquire(True)
            elif self.taken == seen:
                with self.lock:
                    self.started += 1
                self._start()
