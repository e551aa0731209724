"""Frames: header, kinds and words.

Owns the layout of `spec/wire.md`, section Frame. Must not know sockets, values or commands.

A header is read as three numbers: the payload's length, a *word* (version, kind and flags together, so that one
comparison checks all three) and the call's id.
"""

from struct import Struct

VERSION = 1
BODIES = 1
MORE = 2  # another frame of the same RESULTS follows
HEADER_SIZE = 16

HELLO = 1
READY = 2
CALL = 3
RESULT = 4
ERROR = 5
ITEM = 6
END = 7
CREDIT = 8
CANCEL = 9
HOST_CALL = 10
HOST_RESULT = 11
HOST_ERROR = 12
HOST_ITEM = 13
HOST_END = 14
HOST_CREDIT = 15
HOST_CANCEL = 16
LOG = 17
PROGRESS = 18
PING = 19
PONG = 20
TELEMETRY = 21
DRAIN = 22
BYE = 23
CALLS = 24
RESULTS = 25
FAULT = 26
ITEMS = 27

HEADER = Struct("<IIQ")
pack_header = HEADER.pack
unpack_header = HEADER.unpack_from

_U32 = Struct("<I")
pack_u32 = _U32.pack
unpack_u32 = _U32.unpack_from


class Fault(Exception):
    """The other side violated the protocol; the sentence says how. Nothing after it can be trusted."""


def word_of(kind: int, flags: int = 0) -> int:
    """Returns the second number of a header."""
    return VERSION | kind << 8 | flags << 16


# What each side may send is small enough to list. Any other word is a fault, whichever part of it is wrong.
FROM_HOST = frozenset(
    word_of(kind, flags)
    for kind in (
        (HELLO, CALL, CREDIT, CANCEL, HOST_RESULT, HOST_ERROR, HOST_ITEM, HOST_END, PING, DRAIN, CALLS, FAULT)
    )
    for flags in (0, BODIES)
)


def read_credit(message: object) -> "tuple[int, int]":
    """Reads how many more items and bytes a stream may send."""
    if type(message) is list and list(map(type, message)) == [int, int]:
        return message[0], message[1]
    raise Fault("a credit that is not [items, bytes]")


def explain(word: int) -> str:
    """Explains what is wrong with a word that is in neither list."""
    version, kind, flags = word & 0xFF, word >> 8 & 0xFF, word >> 16
    if version != VERSION:
        return f"a frame of version {version}; this worker speaks version {VERSION}"
    if not HELLO <= kind <= ITEMS:
        return f"a frame of unknown kind {kind}"
    if flags & ~BODIES:
        return f"a frame of kind {kind} with unknown flags {flags:#06x}"
    return f"a frame of kind {kind}, which only a worker may send"


def split_bodies(payload: memoryview) -> "tuple[memoryview, memoryview]":
    """Returns the head and the raw bytes of a payload whose frame has the flag BODIES."""
    if len(payload) < 4:
        raise Fault("a frame with bodies whose head has no length")
    stop = 4 + unpack_u32(payload)[0]
    if stop > len(payload):
        raise Fault("a frame whose head is longer than its payload")
    return payload[4:stop], payload[stop:]
