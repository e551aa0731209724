"""Failures: an exception as the error map of `spec/wire.md`, section Errors.

Owns what a caller sees of an exception. Tracebacks show the user's frames only. Nothing that an exception does (a
`__str__` that raises, causes in a circle, a thousand frames of recursion) may break the answer. Must not know sockets.
"""

import os

from .commands.registry import BadArgument, UnknownCommand
from .context import Cancelled, HostError
from .value.error import BadPayload, BadValue, TooLong, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set

    from .value.codec import Codec

MAX_TEXT = 64 * 1024
MAX_FRAMES = 60
MAX_CAUSES = 16
MAX_PARTS = 16

_SDK = os.path.dirname(os.path.abspath(__file__)) + os.sep
_sources: "Dict[str, List[bytes]]" = {}


class Refused(Exception):
    """A call that is not made, for a reason that has a kind of its own."""

    __module__ = "snakepit"

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def error_map(error: BaseException, kind: "Optional[str]" = None) -> "Dict[str, Any]":
    """Returns the error map of an exception."""
    try:
        return _error_map(error, kind, set(), MAX_CAUSES)
    except BaseException as broken:  # the call is answered, whatever a hostile exception does
        name = type(error).__name__
        message = f"{name}, which could not be described: {type(broken).__name__}"
        return {"kind": kind or "exception", "type": name, "message": message}


def encode_error(codec: "Codec", error: BaseException, limit: int) -> bytes:
    """Returns the bytes of the error map. If the error is too long for its frame: its identity and the start of its
    message."""
    whole = error_map(error)
    try:
        encoded = codec.encode(whole, "error", limit, False)
    except TooLong:
        short = {"kind": whole["kind"], "type": whole["type"][:100], "message": whole["message"][: limit // 16] + "…"}
        encoded = codec.encode(short, "error", 1 << 32, False)
    assert type(encoded) is bytes
    return encoded


def _error_map(error: BaseException, kind: "Optional[str]", seen: "Set[int]", left: int) -> "Dict[str, Any]":
    seen.add(id(error))
    answer: "Dict[str, Any]" = {
        "kind": kind or _kind_of(error),
        "type": _clean(type_name(error)),
        "message": _message(error),
    }
    trace = _traceback(error)
    if trace:
        answer["traceback"] = trace
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, (list, tuple)) and notes:
        answer["notes"] = [_text_of(note) for note in notes[:MAX_PARTS]]
    if isinstance(error, UnknownCommand):
        answer["nearest"] = [_clean(name) for name in error.nearest]
    if isinstance(error, BadArgument) and error.parameter is not None:
        answer["parameter"] = _clean(str(error.parameter))
    if isinstance(error, BadValue):
        answer["path"] = _clean(error.path)
    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    if cause is not None and id(cause) not in seen and left > 0:
        answer["cause"] = _error_map(cause, None, seen, left - 1)
    return answer


def _kind_of(error: BaseException) -> str:
    if isinstance(error, BadArgument):
        return "bad_argument"
    if isinstance(error, UnknownCommand):
        return "unknown_command"
    if isinstance(error, BadValue):
        return "bad_value"
    if isinstance(error, BadPayload):
        return "bad_payload"
    if isinstance(error, Cancelled):
        return "cancelled"
    if isinstance(error, Refused):
        return error.kind
    return "exception"


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the command tried to end the process (exit status {_text_of(error.code)})"
    if isinstance(error, HostError):
        return _clean(str(error))
    return _text_of(error)


def _text_of(thing: "Any") -> str:
    try:
        return _clean(str(thing))
    except BaseException as broken:
        return f"<{type(thing).__name__} whose text cannot be made: {type(broken).__name__}>"


def _clean(text: str) -> str:
    """Returns text that can be sent: of bounded length, exactly `str`, without lone surrogates."""
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}… ({len(text) - MAX_TEXT} more)"
    return text.encode("utf-8", "backslashreplace").decode()


def _traceback(error: BaseException) -> str:
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not (code.co_filename.startswith(_SDK) or code.co_filename.startswith("<frozen importlib")):
            frames.append((code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    lines = [_line(*frame) for frame in frames[: MAX_FRAMES // 2]]
    if len(frames) > MAX_FRAMES:
        lines.append(f"  … {len(frames) - MAX_FRAMES} frames …\n")
    lines += [_line(*frame) for frame in frames[max(MAX_FRAMES // 2, len(frames) - MAX_FRAMES // 2) :]]
    lines += _parts(error, "  ", 3)
    return _clean("".join(lines))


def _parts(error: BaseException, indent: str, depth: int) -> "List[str]":
    """Returns the exceptions in an exception group, one line each."""
    parts = getattr(error, "exceptions", None)
    if not isinstance(parts, tuple) or depth == 0:
        return []
    lines = []
    for part in parts[:MAX_PARTS]:
        if isinstance(part, BaseException):
            lines.append(f"{indent}+ {type_name(part)}: {_text_of(part)}\n")
            lines += _parts(part, indent + "  ", depth - 1)
    if len(parts) > MAX_PARTS:
        lines.append(f"{indent}+ … {len(parts) - MAX_PARTS} more\n")
    return lines


def _line(filename: str, number: int, function: str) -> str:
    head = f'  File "{filename}", line {number}, in {function}\n'
    source = _source(filename, number)
    return f"{head}    {source}\n" if source else head


def _source(filename: str, number: "Optional[int]") -> str:
    """Returns the line of source if the file can be read. The last few files are cached."""
    lines = _sources.get(filename)
    if lines is None:
        lines = []
        if not filename.startswith("<"):
            try:
                with open(filename, "rb") as file:
                    lines = file.read(4 << 20).splitlines()
            except (OSError, ValueError):
                pass
        if len(_sources) >= 16:
            _sources.clear()
        _sources[filename] = lines
    if number is None or not 0 < number <= len(lines):
        return ""
    return lines[number - 1].decode("utf-8", "replace").strip()[:500]
