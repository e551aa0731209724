"""The flusher: no gathered answer waits longer than about a millisecond.

Owns a thread that is started when answers are held back for the first time, and that sleeps without waking up while
there are none. The loop delays an answer only before a call that it expects to be quick. The flusher bounds the delay
if that guess is wrong.
"""

import sys
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .connection import Connection

PATIENCE = 0.001


class Flusher:
    """The thread that sends held answers. The loop calls `watch` whenever it starts something while answers wait."""

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.awake = False
        self.started = False
        self._called = allocate_lock()
        self._called.acquire()
        self._never = allocate_lock()
        self._never.acquire()

    def watch(self) -> None:
        self.awake = True
        if not self.started:
            self.started = self.connection.is_shared = True
            if sys.getswitchinterval() > PATIENCE:
                sys.setswitchinterval(PATIENCE)
            start_new_thread(self._run, ())
        elif self._called.locked():
            self._called.release()

    def _run(self) -> None:
        connection = self.connection
        while True:
            seen = connection.batch
            self._never.acquire(True, PATIENCE)
            if connection.parts or connection.items:
                if connection.batch == seen:
                    connection.flush()
            elif connection.batch == seen:
                # Nothing came and nothing was sent. The flag is cleared before the check: code that adds answers in
                # between calls `watch`.
                self.awake = False
                if not connection.parts and not connection.items:
                    self._called.acquire()
