"""Answers that survive the death of the worker: they are kept on a shared page of memory until they are sent.

Owns the places behind the slate, one for each CALLS that is under way. A place has four numbers, followed by the
entries of RESULTS. Each step ends with the write of one number, because the worker may be killed between any two
writes.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap
    from typing import Any, List, Optional

SLATE = 4096
PLACE = 64 * 1024
HEAD = 32
# The numbers: the call, how many of its calls were started, the first call whose entry is here, and the size of the
# entries.
CALL, STARTED, FIRST, LENGTH = range(4)


class Place:
    """The place of one CALLS."""

    __slots__ = ("page", "start", "words", "entries")

    def __init__(self, page: "mmap", at: int) -> None:
        self.page = page
        self.start = at + HEAD
        self.words: "Any" = memoryview(page)[at : at + HEAD].cast("Q")
        self.entries = memoryview(page)[self.start : at + PLACE]

    def open(self, call: int) -> None:
        """Resets the place for another call."""
        words = self.words
        words[LENGTH] = words[STARTED] = words[FIRST] = 0
        words[CALL] = call

    def go_on(self, first: int) -> None:
        """Records that the entries before this one were sent."""
        self.words[LENGTH] = 0
        self.words[FIRST] = first


def places(page: "Optional[mmap]") -> "List[Place]":
    """Returns the places behind the slate."""
    if page is None:
        return []
    return [Place(page, at) for at in range(SLATE, len(page) - PLACE + 1, PLACE)]


def nowhere() -> Place:
    """Returns a place that does not outlive the worker, for a host that keeps none."""
    from mmap import mmap

    return Place(mmap(-1, PLACE), 0)
