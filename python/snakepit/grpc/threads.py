"""The threads in which a gRPC server runs its calls.

Owns how many there are. The executor of the standard library starts another thread whenever none is idle at that
moment. So many short concurrent calls would get as many threads, which then compete for the interpreter. Here, a few
threads are enough beside those that are held by a call. While all threads are held and jobs wait, another one is
started every few milliseconds. This is as much of an executor as grpcio needs, and no more.
"""

from _queue import SimpleQueue
from _thread import allocate_lock, get_ident, start_new_thread
from threading import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Set

# This many threads are started on demand, and stay.
FEW = 3
# The seconds between two looks at waiting jobs. If no job was taken in between and calls hold all threads, another
# thread is started.
PATIENCE = 0.002
# After this many looks without a job taken, another thread is started even if not all are held.
LONG = 50


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
    """Runs jobs in the order in which they arrive."""

    def __init__(self) -> None:
        self.jobs: "SimpleQueue[Job]" = SimpleQueue()
        # The threads that a call holds, for however long. Other work of grpcio is short.
        self.held: "Set[int]" = set()
        # Guards the two counts.
        self.lock = allocate_lock()
        self.started = 0
        # The number of threads that wait, less the jobs that wait for them.
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
            needs_thread = short and self.started < FEW
            if needs_thread:
                self.started += 1
        if needs_thread:
            self._start()
        elif short and self.called.locked():
            self._watch()
        return job

    def holding(self, method: "Callable[[Any, Any], Any]") -> "Callable[[Any, Any], Any]":
        """Wraps a method that answers with one value, and holds its thread until then."""

        def hold(request: "Any", context: "Any") -> "Any":
            thread = get_ident()
            self.held.add(thread)
            try:
                return method(request, context)
            finally:
                self.held.discard(thread)

        return hold

    def holding_on(self, method: "Callable[[Any, Any], Any]") -> "Callable[[Any, Any], Any]":
        """Wraps a method that answers with a stream, and holds its thread until the host has taken the last item."""

        def hold(request: "Any", context: "Any") -> "Any":
            self.held.add(get_ident())
            return method(request, context)

        return hold

    def _start(self) -> None:
        Thread(target=self._work, name="snakepit-grpc", daemon=True).start()

    def _work(self) -> None:
        jobs = self.jobs
        thread = get_ident()
        while True:
            with self.lock:
                self.free += 1
            job = jobs.get()
            self.taken += 1
            job.run()
            del job
            self.held.discard(thread)
            if self.started - len(self.held) > FEW and self._may_leave():
                return

    def _may_leave(self) -> bool:
        """Reports whether there are enough threads without this one."""
        with self.lock:
            leaves = self.started - len(self.held) > FEW
            self.started -= leaves
        return leaves

    def _watch(self) -> None:
        if not self.is_watched:
            self.is_watched = True
            start_new_thread(self._see_to_jobs, ())
        else:
            try:
                self.called.release()
            except RuntimeError:  # another thread was faster
                pass

    def _see_to_jobs(self) -> None:
        """Starts another thread whenever jobs wait and no thread takes any."""
        looks = 0
        while True:
            seen = self.taken
            self.never.acquire(True, PATIENCE)
            if self.jobs.empty():
                # The queue is checked again after this, because code that submits a job in between calls `_watch`.
                self.called.acquire(True)
                looks = 0
                continue
            looks = looks + 1 if self.taken == seen else 0
            if looks and (len(self.held) >= self.started or looks > LONG):
                looks = 0
                with self.lock:
                    self.started += 1
                self._start()
