"""The context of a call: what its code may ask and report while it runs.

Owns what users see of a call. The loop that runs the call (`serial/loop.py` or `concurrent/loop.py`) does the work
behind it. Must not know sockets, nor more of frames than their kinds.
"""

from time import monotonic

from . import frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from .session import Session

LEVELS = ("debug", "info", "warning", "error")


class Cancelled(BaseException):
    """The caller no longer wants this call. Not an `Exception`, so that `except Exception` does not swallow it."""

    __module__ = "snakepit"

    def __init__(self, message: str = "the caller has cancelled this call") -> None:
        super().__init__(message)


def close_items(items: "Any", error: BaseException) -> None:
    """Ends an unfinished generator: raises the reason in it. Its own clean-up may run user code."""
    throw = getattr(items, "throw", None)
    if throw is None or getattr(items, "gi_frame", None) is None:
        return
    try:
        if isinstance(error, Cancelled):
            throw(error)
        items.close()
    except BaseException:  # the reason is `error`, whatever the clean-up raises
        pass


class NoCall(RuntimeError):
    """`snakepit.context()` was called where no call is running."""

    __module__ = "snakepit"


class HostError(Exception):
    """A tool of the host failed. `kind`, `type` and `message` belong to the error; `error` is the whole map."""

    __module__ = "snakepit"

    def __init__(self, tool: str, error: "Any") -> None:
        self.tool = tool
        self.error: "Dict[str, Any]" = error if isinstance(error, dict) else {"message": str(error)}
        self.kind = str(self.error.get("kind", "exception"))
        self.type = self.error.get("type")
        self.message = str(self.error.get("message", ""))
        super().__init__(tool, self.message)

    def __str__(self) -> str:
        name = f"{self.type}: " if self.type else ""
        return f"the host's tool {self.tool!r} failed: {name}{self.message}"


class Runner:
    """What a context needs from the loop that runs its call."""

    def tell(self, context: "Context", kind: int, value: "Any") -> None:
        """Sends a frame that belongs to the call, at once."""
        raise NotImplementedError

    def stage(self, context: "Context") -> int:
        """Returns the stage of cancelling that was requested. Checks what the host has sent so far."""
        raise NotImplementedError

    def host_call(self, context: "Context", tool: str, args: "Any") -> "Any":
        raise NotImplementedError

    def host_stream(self, context: "Context", tool: str, args: "Any") -> "Any":
        raise NotImplementedError


class Host:
    """The tools of the host. In an `async def` command, the answers are awaitables and asynchronous iterators."""

    __slots__ = ("_context",)

    def __init__(self, context: "Context") -> None:
        self._context = context

    def call(self, tool: str, /, *args: "Any", **named: "Any") -> "Any":
        """Calls a tool of the host and returns its answer. Raises `HostError` if the tool fails."""
        return self._context._runner.host_call(self._context, tool, _arguments(args, named))

    def stream(self, tool: str, /, *args: "Any", **named: "Any") -> "Any":
        """Iterates over the items that a tool of the host streams. Leaving the loop early ends the stream."""
        return self._context._runner.host_stream(self._context, tool, _arguments(args, named))


def _arguments(args: "Any", named: "Dict[str, Any]") -> "Any":
    if args and named:
        raise TypeError("arguments of a host's tool are given by position or by name, not both")
    return list(args) if args else named


class Context:
    """One running call."""

    __slots__ = ("call_id", "deadline", "_options", "_runner", "_session")

    def __init__(
        self, runner: Runner, call_id: int, deadline: "Optional[float]", options: "Optional[Dict[str, Any]]"
    ) -> None:
        self.call_id = call_id
        # When the caller's time is over, on the clock of `time.monotonic()`; None if the caller waits forever.
        self.deadline = deadline
        self._options: "Dict[str, Any]" = options or {}
        self._runner = runner
        self._session: "Optional[Session]" = None

    @property
    def session_id(self) -> "Optional[str]":
        return self._options.get("session")

    @property
    def session(self) -> "Optional[Session]":
        """The session of this call, with `.id`, `.store` (in the host) and `.local` (in this worker)."""
        if self._session is None and self.session_id is not None:
            from .session import Session

            self._session = Session(self.session_id, self)
        return self._session

    @property
    def metadata(self) -> "Dict[str, str]":
        return self._options.get("metadata") or {}

    @property
    def cancelled(self) -> bool:
        """Whether the caller has asked this call to stop. A check costs about a microsecond."""
        return self._runner.stage(self) > 0

    @property
    def host(self) -> Host:
        return Host(self)

    def remaining(self) -> "Optional[float]":
        """Returns the seconds until the deadline, never less than 0, or None without a deadline."""
        return None if self.deadline is None else max(self.deadline - monotonic(), 0.0)

    def progress(self, fraction: "Optional[float]" = None, text: "Optional[str]" = None) -> None:
        """Reports to the caller how far the call has come: a fraction from 0 to 1, a text, or both."""
        self._runner.tell(self, frame.PROGRESS, [fraction, text])

    def log(self, level: str, text: str, /, **fields: "Any") -> None:
        """Writes a line into the host's log, with fields that keep their types."""
        if level not in LEVELS:
            raise ValueError(f"the level {level!r} is not one of {', '.join(LEVELS)}")
        self._runner.tell(self, frame.LOG, [level, str(text), fields])

    def telemetry(self, name: str, value: "Any", /, **more: "Any") -> None:
        """Sends a measurement to the host."""
        self._runner.tell(self, frame.TELEMETRY, {**more, "name": name, "value": value})


def _no_context() -> Context:
    raise NoCall("snakepit.context() is available only while a command runs, in the thread or task that runs it")


_source: "Callable[[], Context]" = _no_context


def serve_contexts(source: "Callable[[], Context]") -> None:
    """Sets the function that finds the current context. Called by the loop that runs calls."""
    global _source
    _source = source


def context() -> Context:
    """Returns the context of the call that is running now."""
    return _source()
