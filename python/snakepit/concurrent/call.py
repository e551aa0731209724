"""One call of the concurrent loop.

Owns a call from its frame to its answer, and its interruption: stage 2 of a cancel is an exception that the interpreter
raises in the call's thread, at any instruction. While the SDK itself works in that thread, the call is shielded, and
the exception waits until the user's code goes on.
"""

from _queue import SimpleQueue
from threading import Lock, get_ident
from time import monotonic

from ..context import Cancelled, Context, HostError, close_items
from ..frame import END, ERROR, HOST_CALL, HOST_CANCEL, HOST_CREDIT, HOST_ERROR, HOST_ITEM, ITEM, RESULT
from ..frame import Fault, read_credit, word_of
from ..message import ENOUGH_BYTES, ENOUGH_ITEMS, STREAM_CREDIT, Results, host_call_message
from ..transport.spans import begin, begin_turn, end, end_turn, outgoing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, List, Optional, Tuple

    from ..commands.registry import Command
    from ..transport.slate import Place
    from ..transport.tools import Asked
    from ..value.encode import Encoded
    from .loop import Concurrent

    Answer = Tuple[int, Encoded]

_RESULT, _ERROR = word_of(RESULT), word_of(ERROR)
_CANCELLED = 0
_WAKE = (_CANCELLED, None, 0)
_TURN = (-1, None, 0)
_DONE = object()


class Running:
    """A call that waits, runs or ends."""

    __slots__ = (
        "loop", "call", "name", "args", "options", "deadline", "is_many", "is_nested", "is_async", "command", "_context",
        "is_slow", "came", "place", "credit", "room", "stage", "lock", "thread", "shields", "is_due", "is_thrown", "wakers",
        "task", "asked",
    )

    def __init__(self, loop: "Concurrent", call: int, message: "Any", arrived: float, is_many: bool) -> None:
        if type(message) is not list or not 3 <= len(message) <= 4:
            raise Fault("a CALL that is not [command, args, deadline, options]")
        self.loop = loop
        self.call = call
        self.name, self.args, left = message[:3]
        self.options = message[3] if len(message) == 4 and type(message[3]) is dict else {}
        self.deadline: "Optional[float]" = None if left is None else arrived + left / 1000
        self.is_many = is_many
        self.is_nested = "nested" in self.options
        self.is_async = False
        self.command: "Optional[Command]" = None
        self._context: "Optional[Context]" = None
        # Whether the call was not known to be quick when it began. Belongs to the loop.
        self.is_slow = False
        # The position of the call among all calls that have come. Belongs to the loop.
        self.came = 0
        # Where the answers are kept if these are many calls. Belongs to the loop.
        self.place: "Optional[Place]" = None
        self.credit = 0
        self.room = 0
        self.stage = 0
        # Guards the fields below, which both the reading thread and the call's thread use.
        self.lock = Lock()
        self.thread = 0
        self.shields = 1
        self.is_due = False
        self.is_thrown = False
        self.wakers: "List[SimpleQueue[Any]]" = []
        self.task: "Any" = None
        # The call's requests to the host's tools; managed by `transport/tools.py`.
        self.asked: "Asked" = {}

    @property
    def context(self) -> Context:
        """The context, created on demand: most calls do not need it."""
        if self._context is None:
            self._context = Context(self.loop, self.call, self.deadline, self.options)
        return self._context

    def resolve(self) -> None:
        """Finds the command. An unknown command is reported when the call runs."""
        try:
            self.command = self.loop.life.registry.commands.get(self.name)
        except TypeError:
            self.command = None
        self.is_async = self.command is not None and self.command.is_async

    # --- cancel ---

    def cancel(self, stage: int) -> None:
        """Cancels the call. Called by the reader."""
        with self.lock:
            self.stage = max(self.stage, stage)
            for waker in self.wakers:
                waker.put(_WAKE)
        if self.task is not None:
            self.task.cancel(self.stage)
        elif stage >= 2:
            with self.lock:
                if self.shields:
                    self.is_due = True
                elif not self.is_thrown:
                    self.is_thrown = True
                    _throw(self.thread, self._interruption())

    def _interruption(self) -> type:
        """Returns a class of its own for each interruption. When the class is instantiated, the interruption has
        arrived."""

        def arrive(error: "Any", *_: "Any") -> None:
            self.is_thrown = False
            Cancelled.__init__(error)

        return type("Cancelled", (Cancelled,), {"__module__": "snakepit", "__init__": arrive})

    def shield(self) -> None:
        """Begins a section in which the SDK works in this thread and must not be interrupted. Other threads are not
        affected."""
        if get_ident() != self.thread:
            return
        with self.lock:
            if self.is_thrown:
                # The interruption is pending and could arrive at any instruction. So it is withdrawn and raised here.
                _throw(self.thread, None)
                self.is_thrown = False
                raise Cancelled()
            self.shields += 1

    def unshield(self) -> None:
        if get_ident() != self.thread:
            return
        with self.lock:
            self.shields -= 1
            if self.shields == 0 and self.is_due:
                self.is_due = False
                raise Cancelled()

    # --- running ---

    def run(self) -> None:
        """Runs the call in this thread and answers it."""
        self.thread = get_ident()
        word, encoded = _ERROR, None
        attached = begin(self.options) if "trace" in self.options else None
        try:
            try:
                word, encoded = self._answer()
            finally:
                self._settle()
        except BaseException as error:
            word, encoded = _ERROR, None
            self._settle()
            encoded = self.loop.failure(error)
        end(attached)
        self.loop.answer(self.call, word, encoded)

    def _settle(self) -> None:
        """Drops whatever was to be raised, because the user's code is over. The call stays shielded."""
        try:
            self.shields = max(self.shields, 1)
            self.shield()
        except Cancelled:
            with self.lock:
                self.shields += 1

    def check(self) -> "Command":
        """Returns the command, or raises the reason why the call is not made."""
        life = self.loop.life
        if self.stage:
            raise Cancelled("cancelled before it was started")
        if self.deadline is not None and self.deadline <= monotonic():
            raise life.too_late()
        command = self.command or life.engine_command(self.name)
        if command.streams and ("stream" not in self.options or self.is_many):
            raise life.streaming(self.name)
        return command

    def _answer(self) -> "Answer":
        if self.is_many:
            return self._answer_many()
        command = self.check()
        if "stream" in self.options:
            self._stream(command)
            return word_of(END), b""
        self.unshield()
        value = command.run(self.args)
        self.shield()
        return _RESULT, self.loop.codec.encode(value, "result", self.loop.connection.max_frame)

    def _answer_many(self) -> "Answer":
        if self.command is not None and self.command.batch:
            return Results(self.loop, self.call).of(self._answer_lists(self.command))
        results = self.loop.results_of(self)
        for index, args in enumerate(self.args):
            try:
                command = self.check()
                self.loop.note_input(self, index)
                results.begins(index)
                self.unshield()
                value = command.run(args)
                self.shield()
                entry = results.good(value)
            except BaseException as error:
                self._settle()
                self.shields = 1
                entry = results.bad(error)
            results.add(entry)
        return results.last()

    def _answer_lists(self, command: "Command") -> "List[Any]":
        """Answers many calls of a batch command, whose function gets lists."""
        from ..commands.batch import Lists

        lists = Lists(command, self.args)
        while lists.next():
            try:
                self.check()
            except BaseException as error:
                lists.refused(error)
                continue
            begun = begin_turn(self.call, self.options, lists.current)
            try:
                self.loop.note_input(self, lists.started - 1)
                self.unshield()
                values = lists.invoke()
                self.shield()
            except BaseException as error:
                self._settle()
                self.shields = 1
                lists.raised(error)
            else:
                lists.answered(values)
            end_turn(begun)
        return lists.outcomes

    def _stream(self, command: "Command") -> None:
        self.take_first_credit()
        credits: "SimpleQueue[Any]" = SimpleQueue()
        with self.lock:
            self.wakers.append(credits)
        self.unshield()
        items = command.run(self.args)
        self.shield()
        if not hasattr(items, "__next__"):
            items = iter((items,))
        try:
            while True:
                self.unshield()
                item = next(items, _DONE)
                self.shield()
                if item is _DONE:
                    return
                while not self.may_send() and not self.stage:
                    credits.get()
                if self.stage:
                    raise Cancelled("the caller no longer wants the stream")
                self.send_item(item)
        except BaseException as error:
            self._settle()
            close_items(items, error)
            raise

    def take_first_credit(self) -> None:
        credit, room = read_credit(self.options["stream"])
        with self.lock:
            # More may have come before the stream began.
            self.credit += credit
            self.room += room

    def may_send(self) -> bool:
        return self.credit > 0 and self.room > 0

    def send_item(self, item: "Any") -> None:
        connection = self.loop.connection
        encoded = self.loop.codec.encode(item, "item", connection.max_frame)
        with self.lock:
            self.credit -= 1
            self.room -= len(encoded)
        connection.post(word_of(ITEM), self.call, encoded)
        connection.flush()

    def add_credit(self, message: "Any") -> None:
        """Adds to the credit of the stream. Called by the reader."""
        more, room = read_credit(message)
        with self.lock:
            self.credit += more
            self.room += room
            for waker in self.wakers:
                waker.put(_WAKE)
        if self.task is not None:
            self.task.wake()

    # --- what its context needs ---

    def tell(self, kind: int, value: "Any") -> None:
        self.shield()
        try:
            self.send(kind, value)
        finally:
            self.unshield()

    def send(self, kind: int, value: "Any") -> None:
        connection = self.loop.connection
        encoded = self.loop.codec.encode(value, "value", connection.max_frame, False)
        connection.post(word_of(kind), self.call, encoded)
        connection.flush()

    def prepare(self, tool: str, args: "Any", options: "Any", waiter: "Any") -> "Tuple[int, Encoded]":
        """Returns a HOST_CALL that is still to be sent, and its number. The answers go to the waiter."""
        loop = self.loop
        number = loop.wait_for(waiter)
        try:
            return number, self.tool_message(number, tool, args, outgoing(self.context, options))
        except BaseException:
            del loop.waiters[number]
            raise

    def tool_message(self, number: int, tool: str, args: "Any", options: "Any") -> "Encoded":
        return host_call_message(self.loop.codec, number, tool, args, options, self.loop.connection.max_frame)

    def ask(self, message: "Encoded") -> None:
        """Sends a HOST_CALL that `ToolCalls` has admitted."""
        loop = self.loop
        # Checked after the admission: either this check sees that the call is over, or the end of the call sees
        # the request.
        if loop.calls.get(self.call) is not self:
            raise RuntimeError(f"call {self.call} is over")
        loop.connection.post(word_of(HOST_CALL), self.call, message)
        loop.connection.flush()

    def ask_for_stream(self, tool: str, args: "Any", waiter: "Any") -> int:
        number, message = self.prepare(tool, args, {"stream": STREAM_CREDIT}, waiter)
        try:
            self.loop.tools.enter_stream(self, number, len(message))
            self.ask(message)
        except BaseException:
            self.forget(number)
            raise
        return number

    def forget(self, number: int) -> None:
        """Removes a tool call that is over or will not be made."""
        del self.loop.waiters[number]
        self.loop.tools.leave(self, number)

    def host_call(self, tool: str, args: "Any") -> "Any":
        answers: "SimpleQueue[Any]" = SimpleQueue()
        self.shield()
        try:
            number, message = self.prepare(tool, args, None, answers.put)
            try:
                if not self.loop.tools.enter(self, number, len(message), lambda: answers.put(_TURN)):
                    self._wait(answers, number)
                self.ask(message)
                kind, value, _ = self._wait(answers, number)
            finally:
                self.forget(number)
        finally:
            self.unshield()
        if kind == HOST_ERROR:
            raise HostError(tool, value)
        return value

    def host_stream(self, tool: str, args: "Any") -> "Iterator[Any]":
        answers: "SimpleQueue[Any]" = SimpleQueue()
        self.shield()
        try:
            number = self.ask_for_stream(tool, args, answers.put)
        finally:
            self.unshield()
        return self._items(tool, answers, number)

    def _items(self, tool: str, answers: "SimpleQueue[Any]", number: int) -> "Iterator[Any]":
        taken = size = 0
        kind = HOST_ITEM
        try:
            while True:
                self.shield()
                try:
                    kind, value, length = self._wait(answers, number)
                    taken += 1
                    size += length
                    if kind == HOST_ITEM and (taken >= ENOUGH_ITEMS or size >= ENOUGH_BYTES):
                        self.send(HOST_CREDIT, [number, taken, size])
                        taken = size = 0
                finally:
                    self.unshield()
                if kind == HOST_ERROR:
                    raise HostError(tool, value)
                if kind != HOST_ITEM:
                    return
                yield value
        finally:
            if kind == HOST_ITEM and not self.loop.connection.forked:
                self.withdraw(number)
            self.forget(number)

    def withdraw(self, number: int) -> None:
        """Withdraws from the stream of a tool. May run in a finalizer, at any allocation, even inside a flush."""
        self.loop.connection.post(word_of(HOST_CANCEL), self.call, self.loop.codec.encode([number]))
        self.loop.connection.nudge()

    def _wait(self, answers: "SimpleQueue[Any]", number: int) -> "Tuple[int, Any, int]":
        """Waits for the next answer of a tool. Stage 2 of a cancel ends the wait."""
        with self.lock:
            self.wakers.append(answers)
        try:
            while True:
                kind, value, size = _WAKE if self.stage >= 2 else answers.get()
                if kind != _CANCELLED:
                    return kind, value, size
                if self.stage >= 2:
                    self.send(HOST_CANCEL, [number])
                    raise Cancelled()
        finally:
            with self.lock:
                self.wakers.remove(answers)


def _throw(thread: int, error: "Any") -> None:
    """Raises an exception in another thread, or takes back one that has not arrived."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error) if error else None)
