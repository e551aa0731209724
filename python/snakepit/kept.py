"""Answers that a death must not take along: kept on a page that survives the worker until they are sent.

Owns the places behind the slate, one for each CALLS that is under way. A place has four numbers, and then the entries of
RESULTS, one after the other. Each step is one number written last: a worker may be killed between any two.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

PLACE = 64 * 1024
HEAD = 32
# The numbers: the call, how many of its calls were started, the first one whose entry is here, and how many entries (in the
# upper half) of how many bytes.
CALL, STARTED, FIRST, MARK = range(4)


class Place:
    """What is kept of one CALLS."""

    __slots__ = ("words", "entries")

    def __init__(self, page: memoryview) -> None:
        self.words: "Any" = page[:HEAD].cast("Q")
        self.entries = page[HEAD:]

    def open(self, call: int) -> None:
        """For another call; nothing of it is kept."""
        words = self.words
        words[MARK] = words[STARTED] = words[FIRST] = 0
        words[CALL] = call

    def go_on(self, first: int) -> None:
        """The entries before this one were sent."""
        self.words[MARK] = 0
        self.words[FIRST] = first


def places(page: memoryview) -> "List[Place]":
    """Those that a page has room for."""
    return [Place(page[at : at + PLACE]) for at in range(0, len(page) - PLACE + 1, PLACE)]


def nowhere() -> Place:
    """A place that does not outlive the worker, for a host that keeps none."""
    return Place(memoryview(bytearray(PLACE)))
