"""The life of a worker besides its calls: hooks, slate, the engine's own commands, and the ways to end.

Owns how a worker begins and ends. Must not know how calls are run.
"""

import os
import sys
from _thread import start_new_thread

from .commands.registry import Command, registry
from .frame import BYE, word_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from mmap import mmap
    from typing import Any, Callable, Dict, NoReturn, Optional

    from .error import Refused
    from .transport.connection import Connection
else:
    import _signal

PAGE = 4096
BEATS = 3  # the position of the heartbeat count in the slate


class Life:
    """The state that both loops share."""

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.registry = registry
        self.slate: "Any" = [0, 0, 0]
        # The page of the slate and of the places behind it.
        self.page: "Optional[mmap]" = None
        self.features: "list[str]" = []
        self.signals: "Dict[str, int]" = {}
        self.run_hook: "Callable[..., Any]" = _call
        # What is known of tasks: the tasks of calls with their numbers and names, and the call that began a given task.
        self.calls_with_tasks: "Callable[[], list[Any]]" = list
        self.call_of_task: "Callable[[Any], Optional[int]]" = _nothing
        self._stopped = False
        connection.gone = self.gone
        self._engine: "Dict[str, Command]" = {
            "snakepit.health": Command("snakepit.health", self._health),
            "snakepit.session_end": Command("snakepit.session_end", self._session_end),
        }

    def map_slate(self, fd: int) -> None:
        """Maps the page that shows the host, after a death, which call was started last."""
        from mmap import mmap

        os.set_inheritable(fd, False)
        self.page = mmap(fd, 0)
        self.slate = memoryview(self.page)[:PAGE].cast("Q")
        self.features.append("slate")

    def beat_when_asked(self, fd: int) -> None:
        """Starts the thread that shows the host, through the slate, that Python code can run.

        The thread takes no signals: those are meant for the main thread, whose system calls they must interrupt. It
        holds no lock while it waits, so a fork at any moment is as safe as without it, and the end of the process does
        not wait for it.
        """
        before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        try:
            start_new_thread(_answer_beats, (fd, self.slate))
        except RuntimeError:  # the system has no more threads, so the worker goes on without heartbeats
            return
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
        self.features.append("beat")

    # --- the engine's commands ---

    def engine_command(self, name: "Any") -> Command:
        command = self._engine.get(name) if type(name) is str else None
        if command is not None:
            return command
        if type(name) is str and name.startswith("snakepit."):
            return Command(name, _nothing)
        raise self.registry.unknown(name)

    def _health(self) -> "Any":
        answer = None
        for hook in self.registry.health:
            answer = self.run_hook(hook)
        return answer

    def _session_end(self, session: str) -> None:
        from .session import Session

        ending = Session(session, None)
        try:
            for hook in self.registry.session_end:
                self.run_hook(hook, ending)
        finally:
            ending.forget()

    def streaming(self, name: str) -> "Refused":
        from .error import Refused

        return Refused("streaming", f"{name} streams its answer; call it as a stream")

    def too_late(self) -> "Refused":
        from .error import Refused

        return Refused("deadline", "the caller's time was over before the call was started")

    # --- the ways to end ---

    def stop(self) -> None:
        """Runs the stop hooks, once. A hook that fails does not keep the others from running."""
        if self._stopped or self.connection.forked:
            return
        self._stopped = True
        for hook in self.registry.stop:
            try:
                self.run_hook(hook)
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)

    def bye(self) -> None:
        """Ends the worker as the host has asked."""
        self.connection.flush()
        self.stop()
        self.connection.post(word_of(BYE), 0, b"")
        self.connection.flush()

    def end(self) -> "NoReturn":
        """Ends the process as the interpreter would: threads that are not daemons, exit handlers, streams.

        It does not dismantle the interpreter, which would take several times as long as the rest: the system frees the
        memory.
        """
        threading = sys.modules.get("threading")
        try:
            if threading is not None:
                threading._shutdown()
        finally:
            self._exit(0)

    def gone(self) -> "NoReturn":
        """Ends the process when the host is gone or done with this worker: without waiting for threads, without more
        frames."""
        if not self.connection.forked:
            self.stop()
        self._exit(0)

    def leave(self, reason: str) -> "NoReturn":
        print(f"snakepit: {reason}", file=sys.stderr)
        self._exit(1)

    def fault(self, sentence: str) -> "NoReturn":
        """Ends the process because the host violated the protocol."""
        self.connection.fault(sentence)
        self.leave(f"the host sent {sentence}")

    def _exit(self, status: int) -> "NoReturn":
        import atexit

        try:
            atexit._run_exitfuncs()
        finally:
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except (OSError, ValueError, AttributeError):
                    pass
            os._exit(status)


def _answer_beats(fd: int, slate: "Any", read: "Callable[[int, int], bytes]" = os.read) -> None:
    """Counts each read. Several requests that waited get one answer."""
    beats = 0
    while True:
        try:
            if not read(fd, 64):
                return
            beats += 1
            slate[BEATS] = beats
        except OSError:
            return
        except BaseException:  # out of memory, or an exception that is raised in every thread
            pass


def _call(hook: "Callable[..., Any]", *args: "Any") -> "Any":
    return hook(*args)


def _nothing(*args: "Any", **named: "Any") -> None:
    """Does nothing: a command of the engine that this version does not use."""
