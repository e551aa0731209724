"""Commands: the functions that a worker offers, and the hooks of its life.

Owns the registry, and the way in which a call's arguments reach the function. `signature.py` has the checks themselves.
Must not know the wire.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple, TypeVar, Union, overload

    from .signature import Signature

    F = TypeVar("F", bound=Callable[..., Any])

_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80 | 0x100, 0x200


class BadArgument(TypeError):
    """An argument is missing, unexpected or of the wrong type. Commands may also raise it."""

    __module__ = "snakepit"

    def __init__(self, message: str, parameter: "Optional[str]" = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class UnknownCommand(LookupError):
    """No command has this name. `nearest` holds similar names."""

    __module__ = "snakepit"

    def __init__(self, message: str, nearest: "List[str]") -> None:
        super().__init__(message)
        self.nearest = nearest


class Command:
    """A function with its name. `run(args)` checks the arguments and calls the function."""

    __slots__ = ("name", "function", "streams", "is_async", "run", "peak", "is_direct", "only", "checks", "signature",
                 "batch", "window_us")

    def __init__(self, name: str, function: "Callable[..., Any]") -> None:
        flags = _flags(function)
        self.name = name
        self.function = function
        self.streams = bool(flags & (_GENERATOR | _ASYNC_GENERATOR))
        self.is_async = bool(flags & (_COROUTINE | _ASYNC_GENERATOR))
        self.run: "Callable[[Any], Any]" = self._first_run
        # The recent duration of its calls in seconds. Answers wait only for commands that are known to be quick.
        self.peak = 1.0
        # For a loop that calls the function directly, without `run`: arguments by name, after these checks.
        self.is_direct = False
        # The name of its only parameter. Passing the value by position is quicker than by name.
        self.only: "Optional[str]" = None
        self.checks: "Tuple[Tuple[str, FrozenSet[type]], ...]" = ()
        self.signature: "Optional[Signature]" = None
        # The number of calls that its function takes at a time, as lists (0: none), and how long the host gathers them.
        self.batch = 0
        self.window_us = 0

    def _first_run(self, args: "Any") -> "Any":
        from .signature import prepare

        prepare(self)
        return self.run(args)

    def fit(self, name: str, value: "Any") -> "Any":
        """Returns the argument, converted if its annotation requires it. Raises BadArgument if it does not fit."""
        assert self.signature is not None
        return self.signature.fit(name, value)

    def explain(self, error: BaseException, args: "Any") -> BaseException:
        """Returns the error of a direct call. If no frame of the function was entered, the arguments do not fit."""
        if type(error) is TypeError and self.is_direct and type(args) is dict and self.signature is not None:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                return self.signature.problem((), args) or error
        return error


def _flags(function: "Any") -> int:
    """Returns the code flags of a function, even if it is wrapped with `functools.wraps`."""
    flags = 0
    for _ in range(100):
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is None and not isinstance(function, type):
            code = getattr(getattr(type(function), "__call__", None), "__code__", None)
        flags |= getattr(code, "co_flags", 0)
        function = getattr(function, "__wrapped__", None)
        if function is None:
            break
    return flags


class Registry:
    """The commands and hooks of this process."""

    def __init__(self) -> None:
        self.commands: "Dict[str, Command]" = {}
        self.start: "List[Callable[[], Any]]" = []
        self.stop: "List[Callable[[], Any]]" = []
        self.session_end: "List[Callable[[Any], Any]]" = []
        self.health: "List[Callable[[], Any]]" = []
        # The worker's own module, once it is loaded.
        self.module: "Any" = None

    def add(self, name: str, function: "Callable[..., Any]", batch: "Any" = None, window: "Any" = None) -> None:
        if not callable(function):
            raise TypeError(f"a command is a function, not {type(function).__name__}")
        if name.startswith("snakepit."):
            raise ValueError(f"command {name!r}: names that begin with 'snakepit.' are the engine's")
        known = self.commands.get(name)
        if known is not None and known.function is not function:
            raise ValueError(f"there are two commands {name!r}; give one of them another name: command(name=...)")
        command = Command(name, function)
        if batch is not None:
            from .batch import prepare_batch

            prepare_batch(command, batch, window)
        elif window is not None:
            raise TypeError(f"command {name!r}: a window is for commands with a batch; write command(batch=32, window=...)")
        self.commands[name] = command

    def has_async(self) -> bool:
        """Reports whether any command or hook needs an event loop."""
        hooks = (self.start, self.stop, self.session_end, self.health)
        return any(command.is_async for command in self.commands.values()) or any(
            _flags(hook) & (_COROUTINE | _ASYNC_GENERATOR) for each in hooks for hook in each
        )

    def unknown(self, name: "Any") -> UnknownCommand:
        if type(name) is str and hasattr(getattr(self.module, name, None), "__code__"):
            file = str(getattr(self.module, "__file__", "the worker")).rpartition("/")[2]
            what = "it is not" if self.commands else "no function is"
            return UnknownCommand(f"{file} defines {name}(), but {what} decorated with @snakepit.command", [])
        from difflib import get_close_matches

        nearest = get_close_matches(str(name), self.commands, 3, 0.6)
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
        return UnknownCommand(f"this worker has no command {name!r}{hint}", nearest)


registry = Registry()

if TYPE_CHECKING:

    @overload
    def command(function: F, *, name: "Optional[str]" = None, batch: "Optional[int]" = None,
                window: "Union[str, float, None]" = None) -> F: ...

    @overload
    def command(*, name: "Optional[str]" = None, batch: "Optional[int]" = None,
                window: "Union[str, float, None]" = None) -> "Callable[[F], F]": ...


def command(
    function: "Any" = None,
    *,
    name: "Optional[str]" = None,
    batch: "Optional[int]" = None,
    window: "Union[str, float, None]" = None,
) -> "Any":
    """Makes a function a command: `@command`, or `@command(name="other")`. The function itself is unchanged.

    With `batch=32`, the function gets one list for each parameter, with an entry for each of up to 32 calls, and
    returns a list with one result per call, in their order. A result that is an exception fails only its call. The host
    gathers calls while a batch of the command is under way, for `window` at most ("2ms", or seconds). If the function
    raises, or its worker dies, each call runs again alone, so that only the call to blame fails. So a batch command
    must tolerate being run again.
    """
    if function is None:
        return lambda inner: command(inner, name=name, batch=batch, window=window)
    if isinstance(function, str):
        raise TypeError(f"write command(name={function!r})")
    known = getattr(function, "__name__", None) if name is None else name
    if known is None and callable(function):
        raise TypeError(f"a {type(function).__name__} has no name; give it one: command(name=...)")
    registry.add(known or "", function, batch, window)
    return function


if TYPE_CHECKING:

    @overload
    def evaluator(function: F, *, name: "Optional[str]" = None) -> F: ...

    @overload
    def evaluator(*, name: "Optional[str]" = None) -> "Callable[[F], F]": ...


def evaluator(function: "Any" = None, *, name: "Optional[str]" = None) -> "Any":
    """Makes a function an evaluator, for `snakepit eval --evaluator python:FILE.py:NAME`: `@evaluator`, or `@evaluator(name="other")`.

    The function takes any of `sample` (the whole line of the data set), `input`, `output` (the answer) and `expected`.
    It returns a bool, a score from 0 to 1, or `{"score": ..., "reason": ...}`. An exception counts as the evaluator's
    error, not as that of the answer. The function itself is unchanged.
    """
    if function is None:
        return lambda inner: evaluator(inner, name=name)
    if isinstance(function, str):
        raise TypeError(f"write evaluator(name={function!r})")
    from .evaluator import judging

    known = getattr(function, "__name__", "evaluator") if name is None else name
    registry.add(known, judging(known, function))
    return function


def on_start(function: "F") -> "F":
    """Registers a hook that runs before the worker reports that it is ready. An exception fails the start."""
    registry.start.append(function)
    return function


def on_stop(function: "F") -> "F":
    """Registers a hook that runs when the worker ends in good order, after its last call."""
    registry.stop.append(function)
    return function


def on_session_end(function: "F") -> "F":
    """Registers a hook for the end of a session that this worker may have served. It gets the session (`.id`,
    `.local`)."""
    registry.session_end.append(function)
    return function


def health(function: "F") -> "F":
    """Registers the answer to `snakepit.health`: its value is shown, and an exception means that the worker is
    unhealthy."""
    registry.health.append(function)
    return function
