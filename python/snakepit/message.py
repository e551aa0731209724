"""The messages of `spec/wire.md` that are more than a value: HELLO, READY, HOST_CALL and RESULTS.

Owns their form. RESULTS is the answer to many calls that came together: an entry for each call, in as many frames as
needed. Must not know how the calls are run.
"""

import os
import sys

from .frame import MORE, RESULTS, Fault, word_of
from .transport.slate import LENGTH, STARTED
from .value.decode import decode
from .value.encode import Bodied
from .value.error import BadPayload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple, Union

    from .concurrent.loop import Concurrent
    from .lifecycle import Life
    from .serial.loop import Serial
    from .transport.slate import Place
    from .value.codec import Codec
    from .value.encode import Encoded

# How many items and bytes a tool may stream ahead, and after how many the same amount is granted again.
STREAM_CREDIT = [64, 1 << 20]
ENOUGH_ITEMS, ENOUGH_BYTES = STREAM_CREDIT[0] // 2, STREAM_CREDIT[1] // 2
# The bytes around the only entry of a RESULTS: the header of the array, and the header of the entry.
ARRAY = 5
ENTRY_FRAME = ARRAY + 2
GOOD_ENTRY, BAD_ENTRY = b"\x92\xc3", b"\x92\xc2"


def read_hello(payload: memoryview) -> "Dict[str, Any]":
    """Reads a HELLO, and checks what every worker needs of it."""
    try:
        hello = decode(payload)
    except BadPayload as bad:
        raise Fault(f"a HELLO that cannot be read: {bad}") from None
    if not isinstance(hello, dict) or hello.get("protocol") != 1:
        raise Fault("a HELLO of another protocol than 1")
    max_frame = hello.get("max_frame")
    if type(max_frame) is not int or max_frame <= 0:
        raise Fault("a HELLO without max_frame")
    return hello


def ready_message(life: "Life", sdk: str) -> "Dict[str, Any]":
    """Returns the value of a READY: what this worker is and has."""
    version = sys.version_info
    message = {
        "protocol": 1,
        "sdk": sdk,
        "language": f"python {version[0]}.{version[1]}.{version[2]}",
        "pid": os.getpid(),
        "commands": sorted(life.registry.commands),
        "signals": life.signals,
        "features": life.features,
    }
    batches = {
        name: {"size": command.batch, "window_us": command.window_us}
        for name, command in life.registry.commands.items()
        if command.batch
    }
    if batches:
        message["batches"] = batches
    return message


def host_call_message(codec: "Codec", number: int, tool: str, args: "Any", options: "Any", limit: int) -> "Encoded":
    """Returns the payload of a HOST_CALL. The arguments are written separately, so that an error names its path in
    them."""
    if type(tool) is not str:
        raise TypeError(f"the name of a host's tool is a text, not {type(tool).__name__}")
    encoded = codec.encode(args, "args", limit)
    before = bytes((0x93 if options is None else 0x94,)) + _small(codec, number) + _small(codec, tool)
    after = b"" if options is None else _small(codec, options)
    if type(encoded) is bytes:
        return before + encoded + after
    assert isinstance(encoded, Bodied)
    return Bodied(before + encoded.head + after, encoded.raws, encoded.size)


def _small(codec: "Codec", value: "Any") -> bytes:
    encoded = codec.encode(value, "value", 1 << 32, False)
    assert type(encoded) is bytes
    return encoded


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
