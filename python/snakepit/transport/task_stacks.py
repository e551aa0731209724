"""The stacks of the tasks of event loops, for the host.

Owns the text that a worker writes on the signal `tasks` (`spec/wire.md`, *Cancel*): the stack of each task through all
that it awaits, which the stack of its thread does not show. Imported when the signal comes for the first time. Must not
import asyncio: a worker without tasks has nothing to report.
"""

import os
import sys
from gc import get_referents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

    # A task with the number of its call and a name.
    Named = Tuple[Any, Optional[int], str]

BEGIN, END = b"\x02", b"\x03"
# What a pipe takes in one write, besides the stacks of the threads.
MOST_BYTES = 32 * 1024
MOST_TASKS = 50
MOST_FRAMES = 60
# The package's directory, with the separator.
SDK = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# The attributes of awaitable objects: the frame, and the object that they await in turn. Some objects written in C
# hide both behind another object.
_KINDS = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))
_HIDING = ("async_generator_asend", "async_generator_athrow", "coroutine_wrapper", "anext_awaitable")
_CONTROL = {byte: "?" for byte in (*range(0x20), 0x7F)}


def write_tasks(fd: int, calls: "List[Named]", call_of: "Callable[[Any], Optional[int]]", top: "Any") -> None:
    """Writes the stacks of all tasks, those of calls first. `top` is the frame that the signal has interrupted."""
    sections = []
    size = 0
    for task, call, name in _all_named(calls, call_of)[:MOST_TASKS]:
        section = _section(task, call, name, top).encode("utf-8", "backslashreplace")
        size += len(section)
        if size > MOST_BYTES:
            break
        sections.append(section)
    # In one write, so that the output of other threads comes before or after it.
    os.write(fd, BEGIN + b"".join(sections) + END)


def _all_named(calls: "List[Named]", call_of: "Callable[[Any], Optional[int]]") -> "List[Named]":
    known: "Set[int]" = {id(task) for task, _, _ in calls}
    named = [entry for entry in calls if entry[0] is not None]
    for task in _all_tasks():
        if id(task) not in known and not task.done():
            known.add(id(task))
            named.append((task, call_of(task), str(task.get_name())))
    # Tasks without a call are the least informative.
    return sorted(named, key=lambda entry: entry[1] is None)


def _all_tasks() -> "Iterator[Any]":
    """Returns the tasks of all loops in all threads. The names of the sets depend on the version of Python."""
    module = sys.modules.get("asyncio.tasks")
    for name in ("_all_tasks", "_scheduled_tasks", "_eager_tasks"):
        tasks = getattr(module, name, None)
        for _ in range(10 if tasks else 0):
            try:
                yield from list(tasks)  # type: ignore[arg-type]
                break
            except RuntimeError:  # another thread changed it meanwhile
                continue


def _section(task: "Any", call: "Optional[int]", name: str, top: "Any") -> str:
    of = "" if call is None else f" of call {call}"
    lines = [f"Task{of}: {_clean(name)} (most recent call first):"]
    waits = _waits_for(task)
    if waits:
        lines.append(f"  waits for {waits}")
    frames = _without_sdk(_frames(task.get_coro(), top))
    frames.reverse()
    lines.extend(f'  File "{_clean(file)}", line {line} in {_clean(function)}' for file, line, function in frames[:MOST_FRAMES])
    if len(frames) > MOST_FRAMES:
        lines.append("  ...")
    if not frames:
        lines.append("  <no Python frame>")
    return "\n".join(lines) + "\n"


def _waits_for(task: "Any") -> str:
    """Returns the names of the tasks that it waits for."""
    awaited = getattr(task, "_fut_waiter", None)
    others = getattr(awaited, "_children", None) or [awaited]
    names = [_clean(str(other.get_name())) for other in others if hasattr(other, "get_name") and not other.done()]
    return ", ".join(names[:MOST_TASKS])


def _frames(awaited: "Any", top: "Any") -> "List[Tuple[str, int, str]]":
    """Returns the frames from the outermost to the innermost."""
    frames: "List[Tuple[str, int, str]]" = []
    for _ in range(10 * MOST_FRAMES):
        frame, following = _step(awaited)
        if frame is None:
            break
        if following is None:
            running = _frames_above(frame, top)
            if running:
                frames.extend(_place(each) for each in running)
                break
        frames.append(_place(frame))
        awaited = following
    return frames


def _place(frame: "FrameType") -> "Tuple[str, int, str]":
    return frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name


def _step(awaited: "Any") -> "Tuple[Any, Any]":
    """Returns the frame of a coroutine or generator, and what it awaits in turn."""
    for frame, following in _KINDS:
        if hasattr(awaited, frame):
            return getattr(awaited, frame), getattr(awaited, following)
    if type(awaited).__name__ in _HIDING:
        for referent in get_referents(awaited):
            if any(hasattr(referent, frame) for frame, _ in _KINDS) or type(referent).__name__ in _HIDING:
                return _step(referent)
    return None, None


def _frames_above(frame: "FrameType", top: "Any") -> "List[FrameType]":
    """Returns the frame and those that it has called, innermost last, if it runs in a thread. Only what awaits
    nothing may run."""
    from _thread import get_ident

    tops: "Dict[int, Any]" = dict(sys._current_frames())
    # Excludes the code that does this.
    tops[get_ident()] = top
    for above in tops.values():
        stack: "List[FrameType]" = []
        while above is not None:
            stack.append(above)
            if above is frame:
                return stack[::-1]
            above = above.f_back
    return []


def _without_sdk(frames: "List[Tuple[str, int, str]]") -> "List[Tuple[str, int, str]]":
    """Removes the frames around the user's code, if the user's code has begun."""
    for index, (file, _, _) in enumerate(frames):
        if not file.startswith(SDK):
            return frames[index:]
    return frames


def _clean(text: str) -> str:
    return text.translate(_CONTROL)
