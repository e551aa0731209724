"""The connection: one socket, the received bytes, and the frames that wait to be sent.

Owns the receive buffer and the gathered answers. Frames go out in as few writes as possible: they are gathered until
`flush`, which the code that runs the calls invokes before it waits. Must not know the meaning of values.
"""

import os
from _socket import MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, socket
from _thread import allocate_lock
from time import monotonic

from ..frame import BODIES, CALL, FAULT, FROM_HOST, HEADER_SIZE, ITEM, ITEMS, Fault, explain, word_of
from ..frame import pack_header, pack_u32, unpack_header, unpack_u32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, NoReturn, Optional, Tuple, Union

    from ..value.encode import Encoded

    Part = Union[bytes, Tuple[Any, ...]]

BASE_SIZE = 64 * 1024
KEEP_SIZE = 4 * 1024 * 1024
CALM = 64
GATHER = 256
# Up to this size, a copy costs less than a write of its own.
COPIED = 32 * 1024
DONT_WAIT = MSG_DONTWAIT
# The head of a call, without its large byte strings, is hardly ever longer.
PEEKED = 1024
_CALL_WITH_BODIES = word_of(CALL, BODIES)
_ITEM, _ITEMS = word_of(ITEM), word_of(ITEMS)


class Connection:
    """The connection to the host. `buf[pos:end]` is received and not yet consumed; `parts` wait to be sent."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        os.set_blocking(fd, True)
        self.socket = socket(fileno=fd)
        self.max_frame = 1 << 20  # until HELLO sets it
        # Whether the host takes several items of a stream in one frame.
        self.takes_items = False
        self.size = BASE_SIZE
        self.buf = bytearray(BASE_SIZE)
        self.view = memoryview(self.buf)
        self.pos = 0
        self.end = 0
        self.arrived = 0.0
        self.parts: "List[Part]" = []
        # The items of a stream that wait to be sent, and the call that they belong to. They follow all parts. Only the
        # thread that runs the stream adds items; whoever holds the lock may turn them into a part.
        self.items: "List[bytes]" = []
        self.items_call = 0
        self.batch = 0
        self.lock = allocate_lock()
        self.gone: "Callable[[], Any]" = self._nobody
        self.forked = False
        # Whether another thread than that of the serial loop also sends. Set before that thread sends for the first
        # time and while the loop is not sending. From then on the loop takes the lock.
        self.is_shared = False
        self._calm = 0

    def _nobody(self) -> None:
        os._exit(0)

    def descriptor(self) -> "Optional[int]":
        """Returns the descriptor that an event loop waits for, or None if other threads read."""
        return self.socket.fileno()

    # --- receiving ---

    def fill(self, flags: int = 0) -> bool:
        """Reads what is there, and waits for it unless `flags` is DONT_WAIT. Returns False if nothing is there."""
        pos, end = self.pos, self.end
        if pos == end:
            self.pos = end = 0
            if self.size > BASE_SIZE:
                self._relax()
        else:
            end = self._make_room(pos, end)
        try:
            n = self.socket.recv_into(self.view[end:] if end else self.view, 0, flags)
        except BlockingIOError:
            self.end = end
            return False
        except OSError:
            n = 0
        self.arrived = monotonic()
        self.end = end + n
        if n == 0:
            self.gone()
        return True

    def take_all(self, take: "Callable[[int, int, memoryview], None]") -> bool:
        """Gives every complete frame to `take`, which may itself read on. Returns False if there was none."""
        some = False
        while True:
            pos = self.pos
            room = self.end - pos - HEADER_SIZE
            if room < 0:
                return some
            length, word, call = unpack_header(self.buf, pos)
            if length > self.max_frame:
                raise Fault(f"a frame of {length} bytes; at most {self.max_frame} were agreed")
            if length > room:
                return some
            pos += HEADER_SIZE
            self.pos = pos + length
            if word not in FROM_HOST:
                raise Fault(explain(word))
            some = True
            take(word, call, self.view[pos : pos + length])

    def take_large(self) -> "Optional[Tuple[int, int, memoryview, bytes]]":
        """Waits for the next frame, after a recent large one of which nothing is left. If the frame is a call with
        large bodies, reads them into a byte string of their own, which need not be copied. Returns None without
        reading anything if it is another frame."""
        try:
            seen = self.socket.recv_into(self.view, PEEKED, MSG_PEEK)
            if seen < HEADER_SIZE + 4:
                return None
            length, word, call = unpack_header(self.buf, 0)
            stop = HEADER_SIZE + 4 + unpack_u32(self.buf, HEADER_SIZE)[0]
            left = HEADER_SIZE + length - stop
            if word != _CALL_WITH_BODIES or stop > seen or left <= COPIED or length > self.max_frame:
                return None
            self.socket.recv_into(self.view, stop)
            self.arrived = monotonic()
            self.pos = self.end = self._calm = 0
            bodies = self.socket.recv(left, MSG_WAITALL)
            while len(bodies) < left:
                # A signal interrupted the read.
                more = self.socket.recv(left - len(bodies), MSG_WAITALL)
                if not more:
                    self.gone()
                bodies += more
        except OSError:
            return None
        return word, call, self.view[HEADER_SIZE + 4 : stop], bodies

    def _make_room(self, pos: int, end: int) -> int:
        """Makes room for the frame that begins at `pos`, and moves it to the front if necessary. Returns the new
        end."""
        need = HEADER_SIZE
        if end - pos >= HEADER_SIZE:
            length = unpack_header(self.buf, pos)[0]
            if length > self.max_frame:
                raise Fault(f"a frame of {length} bytes; at most {self.max_frame} were agreed")
            need += length
        if need <= self.size - pos:
            return end
        rest = end - pos
        if need > self.size:
            buf = bytearray(need)
            buf[:rest] = self.view[pos:end]
            self._use(buf)
        else:
            self.buf[:rest] = self.buf[pos:end]
        self._calm = 0
        self.pos = 0
        self.end = rest
        return rest

    def _relax(self) -> None:
        """Releases a large buffer: a huge one at once, others when large frames have become rare."""
        self._calm += 1
        if self.size > KEEP_SIZE or self._calm > CALM:
            self._use(bytearray(BASE_SIZE))

    def _use(self, buf: bytearray) -> None:
        self.buf = buf
        self.view = memoryview(buf)
        self.size = len(buf)

    # --- sending ---

    def post(self, word: int, call: int, encoded: "Encoded") -> None:
        """Adds a frame to those that wait to be sent. Very large byte strings go at once: their owner may change
        them."""
        if self.items and self.lock.acquire(False):
            # Never waits, because finalizers may come here. Who holds the lock closes the items itself.
            try:
                self._close_items()
            finally:
                self.lock.release()
        if type(encoded) is bytes:
            self.parts.append(pack_header(len(encoded), word, call) + encoded)
            return
        head = encoded.head  # type: ignore[union-attr]
        length = len(encoded)
        start = pack_header(length, word | 1 << 16, call) + pack_u32(len(head)) + head
        if length <= COPIED:
            self.parts.append(b"".join((start, *encoded.raws)))  # type: ignore[union-attr]
            return
        self.parts.append((start, *encoded.raws))  # type: ignore[union-attr]
        self.flush()

    def close_items(self) -> None:
        """Makes the items that wait one of the parts, so that what is posted next follows them."""
        if self.items:
            with self.lock:
                self._close_items()

    def _close_items(self) -> None:
        """Makes the items that wait one of the parts. Called under the lock."""
        items = self.items[:]
        del self.items[: len(items)]
        if len(items) == 1:
            self.parts.append(pack_header(len(items[0]), _ITEM, self.items_call) + items[0])
        elif items:
            entries = b"".join((b"\xdd", len(items).to_bytes(4, "big"), *items))
            self.parts.append(pack_header(len(entries), _ITEMS, self.items_call) + entries)

    def flush(self) -> None:
        """Sends all frames that wait."""
        while self.parts or self.items:
            with self.lock:
                sent = self._send()
            if not sent:
                self.gone()
                return

    def nudge(self) -> None:
        """Sends what waits, unless another thread is sending, which then does it. Never waits, so finalizers may
        call it."""
        if (self.parts or self.items) and self.lock.acquire(False):
            try:
                self._send()  # if the host is gone, the next read or write notices it
            finally:
                self.lock.release()

    def _send(self) -> bool:
        """Sends what waits. Called under the lock. Returns False if the host is gone."""
        parts = self.parts
        if self.items:
            self._close_items()
        batch = parts[:]
        del parts[: len(batch)]
        self.batch += 1
        try:
            if tuple not in map(type, batch):
                self.socket.sendall(b"".join(batch) if len(batch) != 1 else batch[0])  # type: ignore[arg-type]
            else:
                self._send_large(batch)
        except OSError:
            return False
        return True

    def _send_large(self, batch: "List[Part]") -> None:
        """Sends without joining the pieces: the kernel gathers them."""
        pieces: "List[Any]" = []
        for part in batch:
            pieces.extend(part if type(part) is tuple else (part,))
        while pieces:
            sent = self.socket.sendmsg(pieces[:GATHER])
            done = 0
            while done < len(pieces) and sent >= len(pieces[done]):
                sent -= len(pieces[done])
                done += 1
            del pieces[:done]
            if sent:
                pieces[0] = memoryview(pieces[0])[sent:]

    def disown(self) -> None:
        """Gives up the socket in a forked child: it belongs to the parent, so the child must not read from it or
        send on it."""
        self.forked = True
        self.parts = []
        self.items = []
        self.post = self.flush = self.nudge = self.fill = self.leave_child  # type: ignore[assignment,method-assign]
        os.close(self.socket.detach())

    def leave_child(self, *answer: "Any") -> "NoReturn":
        """Ends a forked child whose code has returned to the SDK, because it has nowhere to go."""
        status = 0
        if answer and isinstance(answer[0], SystemExit):
            code = answer[0].code
            status = code if isinstance(code, int) else int(code is not None)
        elif answer and isinstance(answer[0], BaseException):
            status = 1
        os._exit(status & 0xFF)

    def fault(self, sentence: str) -> None:
        """Tells the host what it did wrong. This is the last frame."""
        from ..value.encode import encode

        self.post(word_of(FAULT), 0, encode(sentence[:1000]))
        self.flush()
