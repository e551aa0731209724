"""The limits of a worker's requests to the host. A request that the host would refuse waits here instead.

Owns the limits of spec/wire.md. A part of them is reserved for requests that must not wait: streams, because they stay
open for as long as their readers like, and nested calls, because the calls that hold the room may be waiting for them.
The host refuses these if there are too many. So a request waits only behind plain calls, which make room when they end.

Shared by threads and the event loop. A finalizer may call `leave` at any allocation, even inside this file. So `leave`
never waits for the lock; the holder of the lock settles what was left behind.
"""

from collections import OrderedDict, deque
from threading import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Deque, Dict, List, Optional, Tuple

    from ..concurrent.call import Running

    # By the number of the tool call: its bytes, and whether it is a stream; None while it waits.
    Asked = Dict[int, Optional[Tuple[int, bool]]]

MOST = 1024
MOST_BYTES = 16 << 20


class ToolCalls:
    """The tool calls of one worker: those that are under way, and those that wait for their turn."""

    def __init__(self, max_frame: int) -> None:
        self.most = _less_spare(MOST)
        self.most_bytes = _less_spare(max(max_frame, MOST_BYTES))
        # Guards the fields below, and `asked` of every call.
        self.lock = Lock()
        self.calls = 0
        self.streams = 0
        self.bytes = 0
        self.waiting: "OrderedDict[int, Tuple[Running, int, Callable[[], None]]]" = OrderedDict()
        # The tool calls that have left, in any thread and without the lock.
        self.left: "Deque[Tuple[Running, int]]" = deque()

    def enter(self, running: "Running", number: int, size: int, wake: "Callable[[], None]") -> bool:
        """Reports whether the tool call may be sent now. If not, `wake` is called in any thread once it may, or once
        its call is over."""
        with self.lock:
            now = running.is_nested or (not self.waiting and self._fits(size))
            if now:
                self._take(running, number, size, False)
            else:
                running.asked[number] = None
                self.waiting[number] = (running, size, wake)
        self._settle()
        return now

    def enter_stream(self, running: "Running", number: int, size: int) -> None:
        """Counts a stream, which does not wait."""
        with self.lock:
            self._take(running, number, size, True)
        self._settle()

    def leave(self, running: "Running", number: int) -> None:
        """Removes a tool call that is over or no longer wanted, whether or not it was sent."""
        self.left.append((running, number))
        self._settle()

    def end_of(self, running: "Running") -> None:
        """Removes the tool calls of a call that was answered: the host has ended them, and answers none of them."""
        if not running.asked:
            return
        with self.lock:
            wakes = [self.waiting[number][2] for number in running.asked if number in self.waiting]
            self.left.extend((running, number) for number in running.asked)
        self._settle()
        for wake in wakes:
            wake()

    def _fits(self, size: int) -> bool:
        # With no call under way, there is nothing to wait for: the host decides.
        return not self.calls or (self.calls + self.streams < self.most and self.bytes + size <= self.most_bytes)

    def _take(self, running: "Running", number: int, size: int, is_stream: bool) -> None:
        running.asked[number] = (size, is_stream)
        self.bytes += size
        if is_stream:
            self.streams += 1
        else:
            self.calls += 1

    def _settle(self) -> None:
        """Removes the tool calls that have left, and admits those that fit then."""
        while self.left and self.lock.acquire(False):
            wakes: "List[Callable[[], None]]" = []
            try:
                while self.left:
                    self._strike(*self.left.popleft())
                while self.waiting:
                    number, (running, size, wake) = next(iter(self.waiting.items()))
                    if not self._fits(size):
                        break
                    del self.waiting[number]
                    self._take(running, number, size, False)
                    wakes.append(wake)
            finally:
                self.lock.release()
            for wake in wakes:
                wake()

    def _strike(self, running: "Running", number: int) -> None:
        self.waiting.pop(number, None)
        taken = running.asked.pop(number, None)
        if taken is None:
            return
        size, is_stream = taken
        self.bytes -= size
        if is_stream:
            self.streams -= 1
        else:
            self.calls -= 1


def _less_spare(limit: int) -> int:
    return limit - limit // 8
