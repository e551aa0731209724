"""Streams in the serial loop: items that are gathered as long as they come quickly, and sent while there is credit.

Owns when items are sent. Items of a slow generator are sent at once. Items of a quick generator are taken several at a
time, without reading the clock, and sent in one frame. If the generator stalls in between, the flusher sends the items
taken so far. Must not know how calls are started.
"""

from itertools import islice
from time import monotonic

from ..context import Cancelled, close_items
from ..frame import END, ITEM, read_credit, word_of
from ..value.encode import NUMBERS, SHORT, TEXTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..commands.registry import Command
    from .loop import Serial

_ITEM = word_of(ITEM)
_END = word_of(END)
_DONE = object()
# An item that takes longer is sent at once.
QUICK = 0.0001
# Gathered items are sent after this time, or at this many bytes or items.
PATIENCE = 0.001
ENOUGH_BYTES = 32 * 1024
ENOUGH_ITEMS = 256
# Items share a frame if they are shorter than this, which an item of SHORT letters is.
LONGEST = 4 * SHORT + 8
# How many items are taken together at first. If they were quick, twice as many follow.
FEW = 8


def serve_stream(serial: "Serial", call: int, command: "Command", args: "Any", first: "Any") -> None:
    """Runs a streaming call, from its arguments to the end of the stream."""
    waits, connection = serial.waits, serial.connection
    stream = Stream(serial, call, first)
    waits.credits[call] = (0, 0)
    items = command.run(args)
    waits.busy = 1
    if not command.streams and not hasattr(items, "__next__"):
        items = iter((items,))
    connection.items_call = call
    try:
        while stream.goes_on(items):
            pass
        connection.close_items()
        connection.post(_END, call, b"")
    except BaseException as error:
        waits.busy = 1
        close_items(items, error)
        raise
    finally:
        connection.close_items()
        serial.call = waits.busy = 0
        waits.signalled = False


class Stream:
    """A stream under way."""

    def __init__(self, serial: "Serial", call: int, first: "Any") -> None:
        self.serial = serial
        self.waits = serial.waits
        self.connection = serial.connection
        self.codec = serial.codec
        self.call = call
        self.credit, self.room = read_credit(first)
        self.packs = serial.connection.takes_items and serial.limit >= ENOUGH_BYTES + (ENOUGH_ITEMS + 1) * LONGEST
        # How many items have come quickly, one after another, up to the number that is taken together.
        self.calm = 0
        self.last = self.sent_at = 0.0
        self.items = self.bytes = 0

    def goes_on(self, items: "Iterator[Any]") -> bool:
        """Takes the next item, or several, and sends what is due. Returns False at the end."""
        flusher = self.serial.flusher
        if not flusher.awake and (self.connection.parts or self.connection.items):
            flusher.watch()
        together = min(self.calm, self.credit, self.room // LONGEST)
        if together >= FEW:
            return self.take_several(items, together)
        self.waits.busy = 0
        item = next(items, _DONE)
        self.waits.busy = 1
        if item is _DONE:
            return False
        self.send(item)
        return True

    def take_several(self, items: "Iterator[Any]", together: int) -> bool:
        """Takes items without a look at the clock, as long as they are numbers or short: these cannot change when the
        generator goes on. Another item is sent by itself."""
        append, write, numbers, texts = self.connection.items.append, self.codec.write_small, NUMBERS, TEXTS
        waits, flusher = self.waits, self.serial.flusher
        taken = size = 0
        other: "Any" = _DONE
        is_over = False
        waits.busy = 0
        for item in islice(items, together):
            kind = type(item)
            if kind in numbers or kind in texts and len(item) < SHORT:
                try:
                    entry = write(item)
                except Exception:  # a big integer, or text that `encode` explains
                    other = item
                    break
                append(entry)
                size += len(entry)
                taken += 1
                if not flusher.awake:
                    waits.busy = 1
                    flusher.watch()
                    if waits.signalled:
                        break
                    waits.busy = 0
            else:
                other = item
                break
        else:
            is_over = taken < together
        waits.busy = 1
        self.credit -= taken
        self.room -= size
        self.items += taken
        self.bytes += size
        if other is not _DONE:
            self.calm = 0
            self.send(other)
            return True
        if is_over:
            return False
        now = monotonic()
        self.calm = min(2 * self.calm, ENOUGH_ITEMS) if now - self.last <= PATIENCE / 4 else 0
        self.settle(now, self.calm > 0)
        return True

    def send(self, item: "Any") -> None:
        """Sends one item, of any kind."""
        connection = self.connection
        if self.credit <= 0 or self.room <= 0:
            self.credit, self.room = self.waits.credit(self.call, self.credit, self.room)
            self.items = self.bytes = 0
            self.last = self.sent_at = monotonic()
        encoded = self.codec.encode(item, "item", self.serial.limit)
        size = len(encoded)
        if self.packs and type(encoded) is bytes and size < LONGEST:
            connection.items.append(encoded)
        else:
            connection.close_items()
            connection.post(_ITEM, self.call, encoded)
        self.credit -= 1
        self.room -= size
        self.items += 1
        self.bytes += size
        now = monotonic()
        is_quick = now - self.last <= QUICK
        if not is_quick:
            self.calm = 0
        elif self.packs and self.calm < FEW:
            self.calm += 1
        self.settle(now, is_quick)

    def settle(self, now: float, is_quick: bool) -> None:
        """Sends what is due. Then looks whether credit or a cancel has come."""
        self.last = now
        is_enough = self.bytes >= ENOUGH_BYTES or self.items >= ENOUGH_ITEMS
        if is_quick and not is_enough and now - self.sent_at <= PATIENCE and not self.waits.signalled:
            return
        self.connection.flush()
        self.items = self.bytes = 0
        self.sent_at = now
        if self.codec.due:
            self.codec.accelerate()
        self.waits.look()
        if self.serial.stages.get(self.call):
            raise Cancelled("the caller no longer wants the stream")
