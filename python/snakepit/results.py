"""The answer to many calls that came together: an entry for each, in as many frames as they need.

Owns the bytes of RESULTS. Must not know how the calls are run.
"""

from .frames import MORE, RESULTS, word_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Tuple, Union

    from .concurrent import Concurrent
    from .serial import Serial
    from .writing import Encoded

# What stands around an entry that has its RESULTS to itself: the array's header, and the entry's own.
ENTRY_FRAME = 5 + 2
GOOD_ENTRY, BAD_ENTRY = b"\x92\xc3", b"\x92\xc2"


def results_message(entries: "List[bytes]") -> bytes:
    """The payload of a RESULTS."""
    return b"\xdd" + len(entries).to_bytes(4, "big") + b"".join(entries)


class Results:
    """The entries of one CALLS."""

    def __init__(self, loop: "Union[Concurrent, Serial]", call: int) -> None:
        self.loop = loop
        self.call = call
        self.limit = self.room = loop.connection.max_frame - ENTRY_FRAME
        self.entries: "List[bytes]" = []

    def good(self, value: "Any") -> bytes:
        encoded = self.loop.codec.encode(value, "result", self.limit, False)
        assert type(encoded) is bytes
        return GOOD_ENTRY + encoded

    def bad(self, error: BaseException) -> bytes:
        return BAD_ENTRY + self.loop.failure(error, ENTRY_FRAME)

    def add(self, entry: bytes) -> None:
        """Sends those before it if it does not fit into a frame with them."""
        self.room -= len(entry)
        if self.room < 0 and self.entries:
            connection = self.loop.connection
            connection.post(word_of(RESULTS, MORE), self.call, results_message(self.entries))
            connection.flush()
            self.entries = []
            self.room = self.limit - len(entry)
        self.entries.append(entry)

    def last(self) -> "Tuple[int, Encoded]":
        return word_of(RESULTS), results_message(self.entries)

    def of(self, outcomes: "List[Any]") -> "Tuple[int, Encoded]":
        """The answer that consists of these; an exception is its call's error."""
        if not any(isinstance(outcome, BaseException) for outcome in outcomes):
            try:
                # All at once, which is faster than one by one, and almost always possible.
                entries = [(True, outcome) for outcome in outcomes]
                return word_of(RESULTS), self.loop.codec.encode(entries, "results", self.limit, False)
            except Exception:  # one of them, found out below, or all together
                pass
        for outcome in outcomes:
            try:
                entry = self.bad(outcome) if isinstance(outcome, BaseException) else self.good(outcome)
            except BaseException as error:
                entry = self.bad(error)
            self.add(entry)
        return self.last()
