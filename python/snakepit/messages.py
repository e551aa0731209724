"""The answer to many calls that came together: an entry for each call, in as many frames as needed.

Owns the bytes of RESULTS. Must not know how the calls are run.
"""

from .frames import MORE, RESULTS, word_of
from .slate import LENGTH, STARTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional, Tuple, Union

    from .concurrent import Concurrent
    from .slate import Place
    from .serial import Serial
    from .encode import Encoded

# The bytes around the only entry of a RESULTS: the header of the array, and the header of the entry.
ARRAY = 5
ENTRY_FRAME = ARRAY + 2
GOOD_ENTRY, BAD_ENTRY = b"\x92\xc3", b"\x92\xc2"


def results_message(count: int, entries: "Union[bytes, memoryview]") -> bytes:
    """Returns the payload of a RESULTS."""
    return b"".join((b"\xdd", count.to_bytes(4, "big"), entries))


class Results:
    """The entries of one CALLS."""

    def __init__(self, loop: "Union[Concurrent, Serial]", call: int) -> None:
        self.loop = loop
        self.call = call
        self.limit = loop.connection.max_frame - ENTRY_FRAME
        self.most = loop.connection.max_frame - ARRAY
        self.entries: "List[bytes]" = []
        self.size = 0
        self.sent = 0
        self.place: "Optional[Place]" = None

    def good(self, value: "Any") -> bytes:
        encoded = self.loop.codec.encode(value, "result", self.limit, False)
        assert type(encoded) is bytes
        return GOOD_ENTRY + encoded

    def bad(self, error: BaseException) -> bytes:
        return BAD_ENTRY + self.loop.failure(error, ENTRY_FRAME)

    def keep_in(self, place: "Optional[Place]") -> None:
        """Sets a place where the entries survive this worker until they are sent."""
        self.place = place
        if place is not None:
            self.most = min(self.most, len(place.entries))
            place.open(self.call)

    def begins(self, index: int) -> None:
        """Records that one of the calls is about to begin."""
        if self.place is not None:
            self.place.words[STARTED] = index + 1

    def add(self, entry: bytes) -> None:
        """Adds an entry. First sends the entries before it if they do not fit together into a frame, or into the
        place."""
        if self.size + len(entry) > self.most and self.entries:
            self._send()
        start, self.size = self.size, self.size + len(entry)
        self.entries.append(entry)
        if self.size > self.most:
            self._send()
        elif self.place is not None:
            self.place.entries[start : self.size] = entry
            self.place.words[LENGTH] = self.size

    def _send(self) -> None:
        connection = self.loop.connection
        connection.post(word_of(RESULTS, MORE), self.call, results_message(len(self.entries), b"".join(self.entries)))
        connection.flush()
        self.sent += len(self.entries)
        self.entries = []
        self.size = 0
        if self.place is not None:
            self.place.go_on(self.sent)

    def last(self) -> "Tuple[int, Encoded]":
        return word_of(RESULTS), results_message(len(self.entries), b"".join(self.entries))

    def of(self, outcomes: "List[Any]") -> "Tuple[int, Encoded]":
        """Returns the answer that consists of these outcomes. An exception is the error of its call."""
        if not any(issubclass(kind, BaseException) for kind in set(map(type, outcomes))):
            try:
                # All at once is faster than one by one, and almost always possible.
                return word_of(RESULTS), self.loop.codec.encode_good(outcomes, self.limit)
            except Exception:  # caused by one of them, which is found below, or by all together
                pass
        for outcome in outcomes:
            try:
                entry = self.bad(outcome) if isinstance(outcome, BaseException) else self.good(outcome)
            except BaseException as error:
                entry = self.bad(error)
            self.add(entry)
        return self.last()
