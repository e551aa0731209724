"""Evaluators: functions that judge the answers of commands.

Owns what an evaluator gets and what it may return. Must not know the wire.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Tuple

_GIVEN = ("sample", "input", "output", "expected")
_MAY_RETURN = "return a bool, a score from 0 to 1, or {'score': ..., 'reason': ...}"
_KEYS = ("score", "passed", "why", "reason")
_VAR_NAMED, _COROUTINE = 0x08, 0x80


def judging(name: str, function: "Callable[..., Any]") -> "Callable[..., Any]":
    """Returns the function as a command: it gets what it takes of `_GIVEN`, and its result is checked."""
    taken = _taken(name, function)
    if _code(name, function).co_flags & _COROUTINE:

        async def judge_later(sample: "Any" = None, input: "Any" = None, output: "Any" = None, expected: "Any" = None) -> "Any":
            given = {"sample": sample, "input": input, "output": output, "expected": expected}
            return _checked(name, await function(**{key: given[key] for key in taken}))

        return judge_later

    def judge(sample: "Any" = None, input: "Any" = None, output: "Any" = None, expected: "Any" = None) -> "Any":
        given = {"sample": sample, "input": input, "output": output, "expected": expected}
        return _checked(name, function(**{key: given[key] for key in taken}))

    return judge


def _code(name: str, function: "Any") -> "Any":
    """Returns the code of the function itself, even if it is wrapped with `functools.wraps`."""
    for _ in range(100):
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        raise TypeError(f"evaluator {name!r}: an evaluator is a function, not {type(function).__name__}")
    return code


def _taken(name: str, function: "Any") -> "Tuple[str, ...]":
    code = _code(name, function)
    if code.co_flags & _VAR_NAMED:
        return _GIVEN
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    taken = tuple(key for key in _GIVEN if key in names)
    if not taken:
        raise TypeError(f"evaluator {name!r}: it must take some of {', '.join(_GIVEN)}, by these names")
    return taken


def _checked(name: str, value: "Any") -> "Any":
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        unknown = [key for key in value if key not in _KEYS]
        if unknown or not ("score" in value or "passed" in value):
            raise ValueError(f"evaluator {name!r} returned {value!r}: {_MAY_RETURN}")
        checked = dict(value)
        if "score" in checked:
            checked["score"] = _score(name, checked["score"])
        return checked
    return _score(name, value)


def _score(name: str, value: "Any") -> float:
    # A text can be converted to a float, too, but is not a score.
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"evaluator {name!r} returned {value!r}: {_MAY_RETURN}")
    score = float(value)
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"evaluator {name!r} returned the score {value!r}: a score is 0 to 1")
    return score
