"""Reading inside a call: what the serial loop does while the user's code waits or asks.

Owns everything that arrives while a call runs: cancels, credit, answers of the host's tools, further calls. There is
only one thread, so the wait itself reads the socket. Must not know how calls are run: `loop.py` runs them.
"""

from _thread import get_ident

from ..context import Cancelled, HostError
from ..frame import CALL, CALLS, CANCEL, CREDIT, DRAIN, FAULT, HOST_CALL, HOST_CANCEL
from ..frame import HOST_CREDIT, HOST_END, HOST_ERROR, HOST_ITEM, HOST_RESULT, PING, PONG, Fault
from ..frame import read_credit, split_bodies, word_of
from ..message import ENOUGH_BYTES, ENOUGH_ITEMS, host_call_message
from ..transport.connection import DONT_WAIT
from ..value.decode import MAX_DEPTH
from ..value.error import BadPayload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import Any, Deque, Dict, Iterator, List, Tuple

    from ..value.codec import Codec
    from .loop import Serial
else:
    from _collections import deque  # the class of collections.deque, without the rest of collections

# A host that never stops sending must not keep a call from going on.
MOST_READS = 64
_HOST_ANSWERS = (HOST_RESULT, HOST_ERROR, HOST_ITEM, HOST_END)


class Waits:
    """The waits of calls. `busy` counts the nested sections of the SDK, in which an interrupting signal must wait."""

    def __init__(self, serial: "Serial") -> None:
        self.serial = serial
        self.connection = serial.connection
        self.codec = serial.codec
        self.thread = get_ident()
        self.busy = 0
        self.waiting = 0
        self.signalled = False
        self.number = 0
        self.outer: "List[int]" = []
        # Items and bytes that were granted and not yet used.
        self.credits: "Dict[int, Tuple[int, int]]" = {}
        # The answers of the tools, each with the length of its payload.
        self.answers: "Dict[int, Deque[Tuple[int, Any, int]]]" = {}

    # --- reading ---

    def pump(self, flags: int = 0) -> bool:
        """Reads once, and takes every complete frame. Returns False if nothing was there."""
        connection = self.connection
        try:
            if not connection.take_all(self._take_inside):
                if not connection.fill(flags):
                    return False
                connection.take_all(self._take_inside)
        except Fault as fault:
            self.serial.life.fault(str(fault))
        return True

    def _take_inside(self, word: int, call: int, payload: memoryview) -> None:
        kind = word >> 8 & 0xFF
        if kind == CALL or kind == CALLS:
            kept = bytes(payload)
            if self.waiting and kind == CALL and b"nested" in kept:
                self._maybe_nested(word, call, kept)
            else:
                self.serial.queue.append((word, call, kept, self.connection.arrived))
            return
        self.take(word, call, payload)
        if kind == PING:
            self.connection.flush()

    def _maybe_nested(self, word: int, call: int, kept: bytes) -> None:
        payload, bodies = memoryview(kept), None
        if word >> 16:
            payload, bodies = split_bodies(payload)
        try:
            message = self.codec.decode(payload, bodies, MAX_DEPTH + 1)
        except BadPayload as bad:
            self.serial.fail(call, bad)
            return
        if type(message) is list and len(message) == 4 and type(message[3]) is dict and "nested" in message[3]:
            self._serve_nested(call, message)
        else:
            self.serial.queue.append((word, call, kept, self.connection.arrived))

    def _serve_nested(self, call: int, message: "Any") -> None:
        """Serves a call inside the wait of another one, whose state it restores afterwards."""
        serial = self.serial
        outer = (serial.call, serial.arrived, serial.message, serial.context)
        # The nested call may be a stream, whose items are not those of a stream around it.
        items_call = self.connection.items_call
        self.connection.close_items()
        busy, self.busy, waiting, self.waiting = self.busy, 0, self.waiting, 0
        serial.arrived = self.connection.arrived
        self.outer.append(serial.call)
        serial.serve(call, message)
        self.connection.flush()
        self.outer.pop()
        self.busy, self.waiting = busy, waiting
        serial.call, serial.arrived, serial.message, serial.context = outer
        self.connection.items_call = items_call

    def take(self, word: int, call: int, payload: memoryview) -> None:
        """Takes a frame that is not a call."""
        serial = self.serial
        kind = word >> 8 & 0xFF
        if kind == PING:
            self.connection.post(word_of(PONG, word >> 16), call, bytes(payload))
            return
        if kind == DRAIN:
            serial.draining = True
            return
        size = len(payload)
        bodies = None
        if word >> 16:
            payload, bodies = split_bodies(payload)
        try:
            message = self.codec.decode(payload, bodies, MAX_DEPTH + 1)
        except BadPayload as bad:
            raise Fault(f"a frame of kind {kind} that cannot be read: {bad}") from None
        if kind == CREDIT:
            items, room = read_credit(message)
            if call in self.credits:
                before = self.credits[call]
                self.credits[call] = (before[0] + items, before[1] + room)
        elif kind == CANCEL:
            if self._is_known(call):
                serial.stages[call] = max(serial.stages.get(call, 0), message if type(message) is int else 1)
        elif kind in _HOST_ANSWERS:
            if type(message) is not list or not message:
                raise Fault(f"a frame of kind {kind} without its id")
            answers = self.answers.get(message[0])
            if answers is not None:
                answers.append((kind, message[1] if len(message) > 1 else None, size))
        elif kind == FAULT:
            serial.life.leave(f"the host says: {message}")
        else:
            raise Fault(f"a frame of kind {kind} that is not allowed at this time")

    def _is_known(self, call: int) -> bool:
        serial = self.serial
        return call == serial.call or call in self.outer or any(call == waiting[1] for waiting in serial.queue)

    # --- what a call needs ---

    def look(self) -> None:
        """Takes what has come by now, without waiting."""
        for _ in range(MOST_READS):
            if not self.pump(DONT_WAIT):
                break

    def enter(self) -> None:
        if self.connection.forked:
            raise RuntimeError("this process was forked from a worker; only the worker itself can talk to the host")
        if get_ident() != self.thread:
            raise RuntimeError("with concurrency 1 only the thread that runs the call can wait for the host")
        self.busy += 1

    def exit(self) -> None:
        """Returns to the user's code, and raises an interruption that came meanwhile."""
        self.busy -= 1
        if self.signalled and not self.busy:
            self.signalled = False
            self.look()
            self.interrupt()

    def interrupt(self) -> None:
        """Raises `Cancelled`, once, if stage 2 was requested for the call that runs now."""
        call = self.serial.call
        if self.serial.stages.get(call) == 2:
            self.serial.stages[call] = 3
            raise Cancelled()

    def on_cancel_signal(self) -> None:
        """Reacts to the signal of stage 2: raises here, in the midst of the user's code, unless the SDK itself is at
        work."""
        if self.busy or not self.serial.call:
            self.signalled = self.busy > 0
            return
        self.busy += 1
        try:
            self.look()
        finally:
            self.busy -= 1
        self.interrupt()

    def stage(self, call: int) -> int:
        if get_ident() != self.thread:
            return self.serial.stages.get(call, 0)
        self.enter()
        try:
            self.look()
            return self.serial.stages.get(call, 0)
        finally:
            self.exit()

    def tell(self, call: int, kind: int, value: "Any") -> None:
        encoded = self.codec.encode(value, "value", self.serial.limit, False)
        own = get_ident() == self.thread
        if own:
            self.enter()
        else:
            self.connection.is_shared = True
            if not self._is_known(call):
                raise RuntimeError(f"call {call} is over")
        try:
            self.connection.post(word_of(kind), call, encoded)
            self.connection.flush()
        finally:
            if own:
                self.exit()

    def credit(self, call: int, items: int, room: int) -> "Tuple[int, int]":
        """Adds what was granted to the remaining items and bytes, and waits until there are some of both.

        Called by the loop, not by the user's code.
        """
        self.connection.flush()
        while True:
            more, self.credits[call] = self.credits[call], (0, 0)
            items += more[0]
            room += more[1]
            if items > 0 and room > 0:
                return items, room
            if self.serial.stages.get(call):
                raise Cancelled("the caller no longer wants the stream")
            self.pump()

    def host_call(self, call: int, tool: str, args: "Any", options: "Any") -> "Any":
        self.enter()
        try:
            number = self._ask(call, tool, args, options)
            try:
                kind, value, _ = self._answer(call, number)
            finally:
                del self.answers[number]
        finally:
            self.exit()
        if kind == HOST_ERROR:
            raise HostError(tool, value)
        return value

    def host_stream(self, call: int, tool: str, args: "Any", options: "Any") -> "Iterator[Any]":
        self.enter()
        try:
            number = self._ask(call, tool, args, options)
        finally:
            self.exit()
        return self._items(call, tool, number)

    def _items(self, call: int, tool: str, number: int) -> "Iterator[Any]":
        taken = size = 0
        over = False
        try:
            while True:
                self.enter()
                try:
                    kind, value, length = self._answer(call, number)
                    if kind == HOST_ITEM:
                        taken += 1
                        size += length
                        if taken >= ENOUGH_ITEMS or size >= ENOUGH_BYTES:
                            self._send(HOST_CREDIT, call, [number, taken, size])
                            taken = size = 0
                finally:
                    self.exit()
                over = kind != HOST_ITEM
                if kind == HOST_ERROR:
                    raise HostError(tool, value)
                if over:
                    return
                yield value
        finally:
            del self.answers[number]
            if not over and not self.connection.forked:
                # May run in a finalizer, at any allocation, even inside a flush.
                self.connection.post(word_of(HOST_CANCEL), call, self.codec.encode([number]))
                self.connection.nudge()

    def _send(self, kind: int, call: int, value: "Any") -> None:
        self.connection.post(word_of(kind), call, self.codec.encode(value))
        self.connection.flush()

    def _ask(self, call: int, tool: str, args: "Any", options: "Any") -> int:
        self.number = number = self.number + 1
        message = host_call_message(self.codec, number, tool, args, options, self.serial.limit)
        self.answers[number] = deque()
        self.connection.post(word_of(HOST_CALL), call, message)
        self.connection.flush()
        return number

    def _answer(self, call: int, number: int) -> "Tuple[int, Any, int]":
        """Waits for the next answer of a tool. Nested calls are served meanwhile. Stage 2 of a cancel ends the wait."""
        answers = self.answers[number]
        self.waiting += 1
        try:
            while not answers:
                if self.serial.stages.get(call) == 2:
                    self._send(HOST_CANCEL, call, [number])
                    self.interrupt()
                self.pump()
        finally:
            self.waiting -= 1
        return answers.popleft()
