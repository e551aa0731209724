"""Batches: many calls of one command as one call of its function, with one list for each parameter.

Owns the form of a batch command, the conversion of calls to lists and of answers to outcomes, and the search for the
call to blame when the function raises: the function is then called again for each call alone. Pure bookkeeping: the
loops call the function. Must not know the wire.
"""

from ..context import Cancelled
from .registry import BadArgument, Command
from .signature import Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import Any, Callable, Deque, Dict, List, Optional, Tuple, Union
else:
    from _collections import deque  # the class of collections.deque, without the rest of collections

MOST_CALLS = 65536
MOST_SECONDS = 60
WINDOW = "2ms"
_UNITS = (("us", 1), ("µs", 1), ("ms", 1000), ("s", 1000000))


def prepare_batch(command: Command, batch: "Any", window: "Any") -> None:
    """Makes a command one that is called with lists. Raises TypeError or ValueError if that is not possible."""
    name = command.name
    if type(batch) is not int:
        raise TypeError(f"command {name!r}: batch is a number of calls, not {type(batch).__name__}")
    if not 1 <= batch <= MOST_CALLS:
        raise ValueError(f"command {name!r}: batch is a number of calls from 1 to {MOST_CALLS}, not {batch}")
    if command.streams:
        raise TypeError(f"command {name!r}: a generator cannot have a batch; return a list with one result per call")
    function = command.function
    for _ in range(100):
        if not hasattr(function, "__wrapped__"):
            break
        function = function.__wrapped__
    if not hasattr(getattr(function, "__func__", function), "__code__"):
        raise TypeError(f"command {name!r}: a batch needs a function written in Python, to read its parameters")
    signature = Signature(name, function)
    if signature.takes_more or signature.takes_any_name:
        raise TypeError(f"command {name!r}: a batch needs named parameters, not *args or **kwargs: each gets a list")
    if not signature.names and not signature.keyword_only:
        raise TypeError(f"command {name!r}: a batch needs a parameter, which gets one entry for each call")
    command.batch = batch
    command.window_us = _microseconds(name, WINDOW if window is None else window)
    command.signature = signature
    command.run = _run_alone(command)


def _microseconds(name: str, window: "Union[str, float]") -> int:
    number: "Any" = window
    if type(window) is str:
        for unit, factor in _UNITS:
            if window.endswith(unit):
                try:
                    number = float(window[: -len(unit)]) * factor / 1000000
                    break
                except ValueError:  # "2ms" also ends with "s"
                    pass
    if type(number) not in (int, float):
        raise TypeError(f'command {name!r}: window is a time such as "2ms" or 0.002 (seconds), not {window!r}')
    if not 0 <= number <= MOST_SECONDS:
        raise ValueError(f"command {name!r}: window is a time from 0 to {MOST_SECONDS} s, not {window!r}")
    return round(float(number) * 1000000)


class Lists:
    """Calls that came together, and their outcomes. An outcome that is an exception is the call's error."""

    def __init__(self, command: Command, many: "List[Any]") -> None:
        assert command.signature is not None
        self.command = command
        self.outcomes: "List[Any]" = [None] * len(many)
        self.rows: "Dict[int, List[Any]]" = {}
        self.started = 0
        signature = command.signature
        fit: "Any" = range(len(many))
        # Nearly always each call gives each argument by its name. Then no call needs steps of its own.
        self.columns = _columns(signature.names + signature.keyword_only, many)
        if self.columns is None:
            self._take_one_by_one(signature, many)
            fit = list(self.rows)
        self.pending: "Deque[Any]" = deque(
            fit[first : first + command.batch] for first in range(0, len(fit), command.batch)
        )
        # The indices of the calls that go together now: a range, or a list.
        self.current: "Any" = ()

    def _take_one_by_one(self, signature: Signature, many: "List[Any]") -> None:
        names = signature.names + signature.keyword_only
        by_position = len(names) == len(signature.names)
        for index, args in enumerate(many):
            try:
                if type(args) is dict and len(args) == len(names):
                    self.rows[index] = [args[name] for name in names]
                elif type(args) is list and len(args) == len(names) and by_position:
                    self.rows[index] = args
                else:
                    self.rows[index] = _row(signature, args)
            except KeyError:
                self.outcomes[index] = signature.problem((), args)
            except BadArgument as bad:
                self.outcomes[index] = bad

    def next(self) -> int:
        """Goes on to the next list. Returns the number of calls that start with it, or 0 if all calls have their
        outcome."""
        if not self.pending:
            return 0
        self.current = self.pending.popleft()
        self.started = max(self.started, self.current[-1] + 1)
        return self.started

    def invoke(self) -> "Any":
        """Calls the function with the lists of the current calls."""
        signature = self.command.signature
        assert signature is not None
        if self.columns is None:
            columns = [list(column) for column in zip(*[self.rows[index] for index in self.current])]
        else:
            # Copies: the function may change its lists, and may have to be called again.
            columns = [column[self.current[0] : self.current[-1] + 1] for column in self.columns]
        split = len(signature.names)
        if not signature.keyword_only:
            return self.command.function(*columns)
        return self.command.function(*columns[:split], **dict(zip(signature.keyword_only, columns[split:])))

    def answered(self, values: "Any") -> None:
        """Takes the value that the function returned."""
        count = len(self.current)
        problem: "Any" = None
        if not isinstance(values, list):
            problem = TypeError(f"{self._name()} must return a list, one result per call, not {type(values).__name__}")
        elif len(values) != count:
            calls = f"{count} call{'s' if count != 1 else ''}"
            results = f"{len(values)} result{'s' if len(values) != 1 else ''}"
            problem = ValueError(f"{self._name()} was given {calls} and returned {results}")
        elif type(self.current) is range and type(values) is list:
            self.outcomes[self.current[0] : self.current[-1] + 1] = values
            return
        for place, index in enumerate(self.current):
            self.outcomes[index] = problem if problem is not None else values[place]

    def raised(self, error: BaseException) -> None:
        """Takes the exception that the function raised. Each call is then made again alone, so that only the calls
        to blame fail."""
        if len(self.current) == 1 or isinstance(error, Cancelled):
            self.refused(error)
        else:
            self.pending.extendleft([index] for index in reversed(self.current))

    def refused(self, error: BaseException) -> None:
        """Sets the error of the current calls, which are not made."""
        for index in self.current:
            self.outcomes[index] = error

    def _name(self) -> str:
        return f"the batch command {self.command.name!r}"


def _columns(names: "Tuple[str, ...]", many: "List[Any]") -> "Optional[List[List[Any]]]":
    """Returns one list for each parameter, or None if not every call gives exactly these arguments by name."""
    if set(map(type, many)) != {dict} or set(map(len, many)) != {len(names)}:
        return None
    try:
        return [[args[name] for args in many] for name in names]
    except KeyError:
        return None


def _row(signature: Signature, args: "Any") -> "List[Any]":
    """Returns the arguments of one call in the order of the parameters, with defaults for those that are missing."""
    positional, named = ((), args) if type(args) is dict else (args if type(args) is list else [args], {})
    problem = signature.problem(positional, named)
    if problem is not None:
        raise problem
    row = list(positional)
    for name in (signature.names + signature.keyword_only)[len(row) :]:
        row.append(named[name] if name in named else signature.defaults[name])
    return row


def _only(command: Command, values: "Any") -> "Any":
    """Returns the result of a batch of one."""
    if type(values) is list and len(values) == 1:
        outcome = values[0]
    else:
        lists = Lists(command, [])
        lists.current, lists.outcomes = [0], [None]
        lists.answered(values)
        outcome = lists.outcomes[0]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _run_alone(command: Command) -> "Callable[[Any], Any]":
    """Returns the function for a call that came alone, which is a batch of one."""
    function, signature = command.function, command.signature
    assert signature is not None
    names, split = signature.names + signature.keyword_only, len(signature.names)

    def invoke(args: "Any") -> "Any":
        columns: "List[Any]" = []
        if type(args) is dict and len(args) == split == len(names):
            try:
                columns = [[args[name]] for name in names]
            except KeyError:
                pass  # explained below
        if not columns:
            columns = [[value] for value in _row(signature, args)]
        if split == len(names):
            return function(*columns)
        return function(*columns[:split], **dict(zip(names[split:], columns[split:])))

    def run(args: "Any") -> "Any":
        return _only(command, invoke(args))

    async def run_async(args: "Any") -> "Any":
        return _only(command, await invoke(args))

    return run_async if command.is_async else run
