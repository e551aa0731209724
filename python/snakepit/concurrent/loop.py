"""The concurrent loop: several calls at a time.

Owns a worker with `concurrency` above 1 or with `async` commands. The main thread reads the socket. Sync commands run
in threads that are started on demand. Async commands run as tasks of one event loop, which then runs in the main
thread. `call.py` has one call; `tasks.py` has what only async calls need, and is imported only for them.

A thread that has finished a call takes the next one that waits, because handing it to another thread would cost more
than a short call does. For the same reason, answers are gathered as long as all running calls are known to be quick.
"""

import select
import threading
from _contextvars import ContextVar
from _queue import SimpleQueue
from collections import deque
from time import monotonic

from ..context import Context, Runner, _no_context, serve_contexts
from ..frame import CALL, CALLS, CANCEL, CREDIT, DRAIN, ERROR, FAULT, HOST_END, HOST_ERROR
from ..frame import HOST_ITEM, HOST_RESULT, PING, PONG, RESULTS, Fault, split_bodies, word_of
from ..message import Results
from ..transport.connection import DONT_WAIT
from ..transport.flusher import Flusher
from ..transport.slate import places
from ..transport.tools import ToolCalls
from ..value.decode import MAX_DEPTH
from ..value.error import BadPayload
from .call import Running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Dict, Optional

    from ..lifecycle import Life
    from ..transport.connection import Connection
    from ..value.codec import Codec
    from ..value.encode import Encoded
    from .tasks import Tasks

# As in `serial/loop.py`: answers do not wait for calls that take longer.
QUICK = 0.0001
MOST_PARTS = 512
_RESULTS = word_of(RESULTS)
_HOST_ANSWERS = (HOST_RESULT, HOST_ERROR, HOST_ITEM, HOST_END)
current_call: "ContextVar[Optional[Running]]" = ContextVar("snakepit_call", default=None)


class Concurrent(Runner):
    """Runs up to `limit` calls at once, and nested calls beyond that."""

    def __init__(self, connection: "Connection", codec: "Codec", life: "Life", limit: int, has_async: bool) -> None:
        self.connection = connection
        self.codec = codec
        self.life = life
        self.limit = limit
        self.tasks: "Optional[Tasks]" = None
        self.draining = False
        # The threads share all of these. The slate is written under the lock, too, so that the call it names was
        # started last.
        self.lock = threading.Lock()
        self.calls: "Dict[int, Running]" = {}
        self.queue: "Deque[Running]" = deque()
        self.active = 0
        # The number of running calls that are not known to be quick.
        self.slow = 0
        self.idle = 0
        self.started = 0
        self.finished = 0
        self.number = 0
        # The number of calls that have come, and the latest of them that was begun.
        self.arrivals = 0
        self.begun = 0
        # Where the answers of a CALLS are kept. If there are more CALLS than places, the answers of the rest are not
        # kept.
        self.places = places(life.page)
        self.tools = ToolCalls(connection.max_frame)
        self.flusher = Flusher(connection)
        self.waiters: "Dict[int, Callable[[Any], None]]" = {}
        self.jobs: "SimpleQueue[Running]" = SimpleQueue()
        self.wake: "Callable[[], None]" = _nothing
        serve_contexts(self.current)
        life.run_hook = self.run_hook
        if has_async:
            from .tasks import Tasks

            self.tasks = Tasks(self)

    # --- reading ---

    def run(self) -> None:
        """Serves until the host drains this worker."""
        if self.tasks is not None:
            self.tasks.run()
            return
        while not self.draining:
            self.read()
        self._drain()

    def _drain(self) -> None:
        """Reads on until the last call is over, which a thread signals through a pipe."""
        import os

        reader, writer = os.pipe()

        def wake() -> None:
            os.write(writer, b".")

        self.wake = wake
        while not self.is_idle():
            ready, _, _ = select.select([self.connection.socket.fileno(), reader], [], [])
            if reader not in ready:
                self.read()

    def is_idle(self) -> bool:
        with self.lock:
            return not self.calls

    def read(self, flags: int = 0) -> bool:
        """Reads once, and takes every complete frame."""
        connection = self.connection
        if connection.parts:
            connection.flush()
        if self.codec.due:
            self.codec.accelerate()
        some = connection.take_all(self._take) or (connection.fill(flags) and connection.take_all(self._take))
        if connection.parts:
            connection.flush()
        return some

    def read_what_is_there(self) -> None:
        """Reads what is there. Called by the event loop, which has seen that something is there."""
        try:
            self.read(DONT_WAIT)
        except Fault as fault:
            self.life.fault(str(fault))

    def _take(self, word: int, call: int, payload: memoryview) -> None:
        kind = word >> 8 & 0xFF
        if kind == PING:
            self.connection.post(word_of(PONG, word >> 16), call, bytes(payload))
            return
        if kind == DRAIN:
            self.draining = True
            return
        size = len(payload)
        bodies = None
        if word >> 16:
            payload, bodies = split_bodies(payload)
        try:
            message = self.codec.decode(payload, bodies, MAX_DEPTH + (2 if kind == CALLS else 1))
        except BadPayload as bad:
            if kind == CALL or kind == CALLS:
                self.fail(call, bad)
                return
            raise Fault(f"a frame of kind {kind} that cannot be read: {bad}") from None
        if kind == CALL or kind == CALLS:
            self._begin(Running(self, call, message, self.connection.arrived, kind == CALLS))
        elif kind in _HOST_ANSWERS:
            if type(message) is not list or not message:
                raise Fault(f"a frame of kind {kind} without its id")
            waiter = self.waiters.get(message[0])
            if waiter is not None:
                waiter((kind, message[1] if len(message) > 1 else None, size))
        elif kind == CREDIT:
            running = self.calls.get(call)
            if running is not None:
                running.add_credit(message)
        elif kind == CANCEL:
            if type(message) is not int:
                raise Fault("a CANCEL that is not a number")
            running = self.calls.get(call)
            if running is not None:
                running.cancel(message)
        elif kind == FAULT:
            self.life.leave(f"the host says: {message}")
        else:
            raise Fault(f"a frame of kind {kind} that is not allowed at this time")

    # --- starting and ending calls ---

    def _begin(self, running: Running) -> None:
        running.resolve()
        with self.lock:
            self.calls[running.call] = running
            self.arrivals += 1
            running.came = self.arrivals
            if not running.is_nested:
                if self.active >= self.limit:
                    self.queue.append(running)
                    return
                self.active += 1
            if not running.is_async:
                self.note_start(running)
            self._note_pace(running)
        self._launch(running)

    def note_start(self, running: Running) -> None:
        """Records in the slate that a call was started. Called under the lock. The order matters: a count of 0 beside
        the id of another call would say that that call had begun nothing.

        A task begins when the event loop reaches it, perhaps after a thread that came later. The slate names the call
        that came last, since all calls before it count as begun.
        """
        if running.came > self.begun:
            self.begun = running.came
            self.life.slate[0] = running.call
            self.life.slate[1] = 0

    def _note_pace(self, running: Running) -> None:
        """Counts a call that is not known to be quick. Called under the lock."""
        command = running.command
        if running.is_many or command is None or command.peak > QUICK:
            running.is_slow = True
            self.slow += 1

    def results_of(self, running: Running) -> Results:
        """Returns an object that collects the answers to many calls."""
        results = Results(self, running.call)
        with self.lock:
            running.place = self.places.pop() if self.places else None
        results.keep_in(running.place)
        return results

    def note_input(self, running: Running, index: int) -> None:
        """Records that one of many calls that came together begins. The slate has room for one count: that of the
        latest CALLS."""
        with self.lock:
            if self.life.slate[0] == running.call:
                self.life.slate[1] = index + 1

    def _launch(self, running: Running) -> None:
        """Hands a call to a thread or to the event loop."""
        if running.is_async and self.tasks is not None:
            self.tasks.launch(running)
            return
        with self.lock:
            needs_thread = self.idle == 0
            if needs_thread:
                self.started += 1
            else:
                self.idle -= 1
        if needs_thread:
            threading.Thread(target=self._work, args=(running,), name=f"snakepit-{self.started}", daemon=True).start()
        else:
            self.jobs.put(running)

    def _work(self, running: Running) -> None:
        """Runs one call after another. This is the body of a thread."""
        while True:
            began = monotonic()
            current_call.set(running)
            running.run()
            current_call.set(None)
            self.took(running, monotonic() - began)
            following = self._end(running)
            if following is not None and self._is_for_thread(following):
                self.hold()
                running = following
                continue
            if following is not None:
                self._launch(following)
            with self.lock:
                # Threads beyond the limit were started for nested calls.
                is_spare = self.idle >= self.limit
                if is_spare:
                    self.started -= 1
                else:
                    self.idle += 1
            # Flushed only after this thread counts as free: the answer may bring the next call at once.
            self.connection.flush()
            if is_spare:
                return
            running = self.jobs.get()

    def _is_for_thread(self, running: Running) -> bool:
        """Reports whether a free thread may run the call."""
        return not running.is_async

    def answer(self, call: int, word: int, encoded: "Encoded") -> None:
        """Queues the last frame of a call. The code that ran the call sends it or holds it. The answers of a CALLS
        are not held."""
        with self.lock:
            self.finished += 1
            self.life.slate[2] = self.finished
        self.connection.post(word, call, encoded)
        if word == _RESULTS:
            self.connection.flush()

    def took(self, running: Running, seconds: float) -> None:
        """Remembers how long a command takes. The memory of a slow call fades step by step."""
        command = running.command
        if command is not None and (seconds > QUICK or running.is_slow):
            command.peak = max(seconds, command.peak / 2)

    def hold(self) -> bool:
        """Lets answers wait while quick calls run and the flusher watches. Returns False if the answers were sent
        instead."""
        parts = self.connection.parts
        if not parts:
            return False
        if self.slow or len(parts) > MOST_PARTS:
            self.connection.flush()
            return False
        if not self.flusher.awake:
            self.flusher.watch()
        return True

    def over(self, running: Running) -> None:
        """Records that a call was answered, and begins the next one."""
        following = self._end(running)
        if following is not None:
            self._launch(following)

    def _end(self, running: Running) -> "Optional[Running]":
        """Records that a call was answered. Returns the next call, which gets its place."""
        following = None
        with self.lock:
            del self.calls[running.call]
            if running.is_slow:
                self.slow -= 1
            if running.place is not None:
                self.places.append(running.place)
            if not running.is_nested:
                if self.queue:
                    following = self.queue.popleft()
                    if not following.is_async:
                        self.note_start(following)
                    self._note_pace(following)
                else:
                    self.active -= 1
            ended = self.draining and not self.calls
        self.tools.end_of(running)
        if ended:
            self.wake()
        return following

    def fail(self, call: int, error: BaseException) -> None:
        self.connection.post(word_of(ERROR), call, self.failure(error))

    def failure(self, error: BaseException, around: int = 0) -> bytes:
        """Returns the bytes of the error. They leave `around` bytes of the frame free."""
        if self.connection.forked:
            self.connection.leave_child(error)
        from ..error import encode_error

        return encode_error(self.codec, error, self.connection.max_frame - around)

    # --- what contexts need ---

    def current(self) -> Context:
        running = current_call.get()
        if running is None:
            return _no_context()
        return running.context

    def _running(self, context: Context) -> Running:
        if self.connection.forked:
            raise RuntimeError("this process was forked from a worker; only the worker itself can talk to the host")
        running = self.calls.get(context.call_id)
        if running is None:
            raise RuntimeError(f"call {context.call_id} is over")
        return running

    def tell(self, context: Context, kind: int, value: "Any") -> None:
        self._running(context).tell(kind, value)

    def stage(self, context: Context) -> int:
        running = self.calls.get(context.call_id)
        return 0 if running is None else running.stage

    def host_call(self, context: Context, tool: str, args: "Any") -> "Any":
        running = self._running(context)
        if self.tasks is not None and self.tasks.is_inside(running):
            return self.tasks.host_call(running, tool, args)
        return running.host_call(tool, args)

    def host_stream(self, context: Context, tool: str, args: "Any") -> "Any":
        running = self._running(context)
        if self.tasks is not None and self.tasks.is_inside(running):
            return self.tasks.host_stream(running, tool, args)
        return running.host_stream(tool, args)

    def wait_for(self, waiter: "Callable[[Any], None]") -> int:
        """Returns a number for a tool call whose answers go to the waiter."""
        with self.lock:
            self.number += 1
            self.waiters[self.number] = waiter
            return self.number

    def run_hook(self, hook: "Callable[..., Any]", *args: "Any") -> "Any":
        answer = hook(*args)
        if self.tasks is not None and hasattr(answer, "__await__"):
            return self.tasks.finish(answer)
        return answer


def _nothing() -> None:
    """Does nothing. The default of what happens when the last call ends."""
