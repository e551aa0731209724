"""The serial loop: one call at a time, without threads and without an event loop.

Owns the common case, a worker with `concurrency` 1 and sync commands, and is written for speed: what the socket has
brought is worked off frame by frame, and the answers go out together when nothing is left. Code of a call that waits
(for credit, for a tool of the host) or asks whether it is cancelled reads the socket from inside the call: cancels are
noted, calls queued, and nested calls served at once. `serial_wait.py` has that half.
"""

from time import monotonic

from . import frames
from .connection import BASE_SIZE
from .context import Cancelled, Context, Runner, serve_contexts
from .frames import CALL, CALLS, END, ERROR, FROM_HOST, HEADER_SIZE, ITEM, RESULT, RESULTS, Fault, split_bodies
from .frames import pack_header, unpack_header, word_of
from .postman import Postman
from .serial_wait import Waits
from .values import MAX_DEPTH, BadPayload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

    from .codec import Codec
    from .commands import Command
    from .connection import Connection
    from .life import Life
    from .writing import Encoded
else:
    from _collections import deque  # what collections.deque is, without the rest of collections

_CALL = word_of(CALL)
_CALLS = word_of(CALLS)
_RESULT = word_of(RESULT)
_ERROR = word_of(ERROR)
_ITEM = word_of(ITEM)
_END = word_of(END)
_RESULTS = word_of(RESULTS)
# The array around a call's arguments is no level of the value, nor is the array of arrays in CALLS.
_CALL_DEPTH = MAX_DEPTH + 1
_CALLS_DEPTH = MAX_DEPTH + 2

# A payload of so few bytes cannot be nested too deep.
SMALL = MAX_DEPTH
QUICK = 0.0001
PATIENCE = 0.001
ENOUGH = 32 * 1024
_DONE = object()


class Serial(Runner):
    """Runs calls in the order in which they come."""

    def __init__(self, connection: "Connection", codec: "Codec", life: "Life") -> None:
        self.connection = connection
        self.codec = codec
        self.life = life
        self.commands = life.registry.commands
        self.slate = life.slate
        self.limit = connection.max_frame
        self.postman = Postman(connection)
        self.finished = 0
        self.draining = False
        self.queue: "Deque[Tuple[int, int, bytes, float]]" = deque()
        # The call that runs now. While it is set and `waits.busy` is 0, a cancel may be raised at any instruction:
        # nothing that must not be torn apart, a write to the socket above all, is done then.
        self.call = 0
        self.arrived = 0.0
        self.left: "Optional[float]" = None
        self.options: "Optional[Dict[str, Any]]" = None
        self.context: "Optional[Context]" = None
        self.stages: "Dict[int, int]" = {}
        self.waits = Waits(self)
        serve_contexts(self.current)

    # --- the loop ---

    def run(self) -> None:
        """Serves until the host drains this worker."""
        while not self.draining:
            try:
                self._loop()
            except Cancelled as late:
                # It was raised just when the call had come to its end, before that was written down.
                call, self.call, self.waits.busy = self.call, 0, 0
                if not call:
                    raise
                self.fail(call, late)
                self.over(call)

    def _loop(self) -> None:
        connection, codec, queue, serve = self.connection, self.codec, self.queue, self.serve
        max_frame, parts, lock = connection.max_frame, connection.parts, connection.lock
        receive, send = connection.socket.recv_into, connection.socket.send
        while True:
            if queue:
                word, call, kept, self.arrived = queue.popleft()
                self.start(word, call, memoryview(kept))
                continue
            pos = connection.pos
            room = connection.end - pos - HEADER_SIZE
            if room >= 0:
                length, word, call = unpack_header(connection.buf, pos)
                if length > max_frame:
                    raise Fault(f"a frame of {length} bytes; at most {max_frame} were agreed")
                if length <= room:
                    pos += HEADER_SIZE
                    connection.pos = stop = pos + length
                    payload = connection.view[pos:stop]
                    if word == _CALL:
                        try:
                            message = codec.read_small(payload) if length <= SMALL else None
                        except Exception:
                            message = None
                        if message is None:
                            self.start(word, call, payload)
                        elif length != room or parts:
                            self.serve_among_others(call, message)
                        else:
                            # Alone: nothing waits to be sent or to be done, so the answer goes out by itself.
                            frame = serve(call, message, self.arrived)
                            if frame is not None:
                                if parts:
                                    parts.append(frame)
                                    continue
                                with lock:
                                    try:
                                        sent = send(frame)
                                    except OSError:
                                        sent = 0
                                    if sent != len(frame):
                                        parts.insert(0, frame[sent:])
                    elif word in FROM_HOST:
                        self.start(word, call, payload)
                    else:
                        raise Fault(frames.explain(word))
                    continue
            if self.draining:
                return
            if parts:
                connection.flush()
            if codec.due:
                codec.accelerate()
            if room != -HEADER_SIZE or connection.size != BASE_SIZE:
                connection.fill()
                self.arrived = connection.arrived
                continue
            # Everything was consumed, and the buffer has its usual size: `fill` in short.
            try:
                connection.pos = connection.end = 0
                connection.end = receive(connection.view)
            except OSError:
                pass
            self.arrived = connection.arrived = monotonic()
            if not connection.end:
                connection.gone()

    def start(self, word: int, call: int, payload: memoryview) -> None:
        """One frame, when more may have come with it."""
        kind = word >> 8 & 0xFF
        if kind != CALL and kind != CALLS:
            self.waits.take(word, call, payload)
            return
        bodies = None
        if word >> 16:
            payload, bodies = split_bodies(payload)
        try:
            message = self.codec.decode(payload, bodies, _CALL_DEPTH if kind == CALL else _CALLS_DEPTH)
        except BadPayload as bad:
            self.fail(call, bad)
            return
        if kind == CALL:
            self.serve_among_others(call, message)
        else:
            began = self.before(self.command_of(message))
            self.serve_many(call, message)
            if monotonic() - began > PATIENCE:
                self.waits.look()

    def serve_among_others(self, call: int, message: "Any") -> None:
        """One CALL, when answers wait to be sent or more has come."""
        command = self.command_of(message)
        began = self.before(command)
        frame = self.serve(call, message, began)
        if frame is not None:
            self.connection.parts.append(frame)
        took = monotonic() - began
        if command is not None:
            peak = command.peak
            command.peak = took if took > peak else peak - (peak - took) * 0.125
        if took > PATIENCE:
            self.waits.look()

    def command_of(self, message: "Any") -> "Optional[Command]":
        try:
            return self.commands.get(message[0])
        except (TypeError, LookupError):
            return None

    def before(self, command: "Optional[Command]") -> float:
        """Sends what waits, unless the command is known to be quick; then the postman keeps an eye on it."""
        parts = self.connection.parts
        if parts:
            if command is None or command.peak > QUICK or len(parts) > 512:
                self.connection.flush()
            elif not self.postman.awake:
                self.postman.watch()
        return monotonic()

    # --- calls ---

    def serve(self, call: int, message: "Any", now: float) -> "Optional[bytes]":
        """One CALL, from its arguments to its answer: the frame to be sent, or None if it was posted already."""
        try:
            if len(message) == 3:
                name, args, left = message
                self.options = options = None
            else:
                name, args, left, options = message
                self.options = options
            command = self.commands.get(name)
        except (TypeError, ValueError):
            raise Fault("a CALL that is not [command, args, deadline, options]") from None
        if (
            command is None
            or options is not None
            or command.streams
            or self.stages
            or (left is not None and self.arrived + left / 1000 <= now)
        ):
            self.serve_special(call, command, name, args, left, options)
            return None
        self.left = left
        self.context = None
        encoded: "Encoded"
        try:
            self.slate[0] = self.call = call
            encoded = self.codec.encode(command.run(args), "result", self.limit)
            self.call = 0
        except BaseException as error:
            self.call = 0
            self.fail(call, error)
            encoded = b""
        self.finished = finished = self.finished + 1
        self.slate[2] = finished
        if type(encoded) is not bytes or self.connection.forked:
            self.connection.post(_RESULT, call, encoded)
        elif encoded:
            return pack_header(len(encoded), _RESULT, call) + encoded
        return None

    def serve_special(
        self, call: int, command: "Optional[Command]", name: "Any", args: "Any", left: "Any", options: "Any"
    ) -> None:
        """A CALL with options, of a generator, of the engine, of nobody, or one that may be too late."""
        self.left = left
        self.context = None
        stage = self.stages.get(call, 0)
        try:
            if stage:
                raise Cancelled("cancelled before it was started")
            if left is not None and self.arrived + left / 1000 <= monotonic():
                raise self.life.too_late()
            if command is None:
                command = self.life.engine_command(name)
            stream = None if options is None else options.get("stream")
            if command.streams and stream is None:
                raise self.life.streaming(name)
            self.slate[0] = self.call = call
            if stream is not None:
                self.stream(call, command, args, stream)
            else:
                encoded = self.codec.encode(command.run(args), "result", self.limit)
                self.call = 0
                self.connection.post(_RESULT, call, encoded)
        except BaseException as error:
            self.call = 0
            self.fail(call, error)
        self.over(call)

    def over(self, call: int) -> None:
        self.call = 0
        self.stages.pop(call, None)
        self.waits.credits.pop(call, None)
        self.finished += 1
        self.slate[2] = self.finished

    def fail(self, call: int, error: BaseException) -> None:
        """Answers with the error."""
        self.connection.post(_ERROR, call, self.failure(error))

    def failure(self, error: BaseException) -> bytes:
        if self.connection.forked:
            self.connection.leave_child(error)
        from .failure import error_map

        encoded = self.codec.encode(error_map(error), "error", self.limit, False)
        assert type(encoded) is bytes
        return encoded

    def serve_many(self, call: int, message: "Any") -> None:
        """A CALLS: each of its calls has its own entry, whatever becomes of the others."""
        try:
            name, many, left = message[:3]
            self.options = message[3] if len(message) > 3 else None
            self.left = left
            self.context = None
            count = len(many)
        except (TypeError, ValueError):
            raise Fault("a CALLS that is not [command, [args, ...], deadline, options]") from None
        self.slate[1] = 0
        self.slate[0] = call
        entries = [b"\xdd" + count.to_bytes(4, "big")]
        encode, limit, slate, stages = self.codec.encode, self.limit, self.slate, self.stages
        command = self.commands.get(name) if type(name) is str else None
        plain = command is not None and not command.streams
        until = None if left is None else self.arrived + left / 1000
        index = 0
        for args in many:
            index += 1
            try:
                if stages and stages.get(call):
                    raise Cancelled("cancelled before it was started")
                if until is not None and until <= monotonic():
                    raise self.life.too_late()
                if not plain:
                    command = self.commands.get(name) or self.life.engine_command(name)
                    if command.streams:
                        raise self.life.streaming(name)
                slate[1] = index
                self.call = call
                encoded = encode(command.run(args), "result", limit, False)  # type: ignore[union-attr]
                self.call = 0
                entries.append(b"\x92\xc3" + encoded)  # type: ignore[operator]
            except BaseException as error:
                self.call = 0
                entries.append(b"\x92\xc2" + self.failure(error))
        answer = b"".join(entries)
        if len(answer) > limit:
            from .values import TooLong

            self.fail(call, TooLong(limit, "results"))
        else:
            self.connection.post(_RESULTS, call, answer)
        self.over(call)

    # --- streams ---

    def stream(self, call: int, command: "Command", args: "Any", credit: int) -> None:
        """Sends items while there is credit, gathered as long as they come quickly."""
        waits, limit = self.waits, self.limit
        waits.credits[call] = 0
        items = command.run(args)
        waits.busy = 1
        if not command.streams and not hasattr(items, "__next__"):
            items = iter((items,))
        connection, codec, parts, postman = self.connection, self.codec, self.connection.parts, self.postman
        sent_at = last = 0.0
        gathered = 0
        try:
            while True:
                if parts and not postman.awake:
                    postman.watch()
                waits.busy = 0
                item = next(items, _DONE)
                waits.busy = 1
                if item is _DONE:
                    break
                if credit <= 0:
                    credit = waits.credit(call)
                encoded = codec.encode(item, "item", limit)
                connection.post(_ITEM, call, encoded)
                credit -= 1
                gathered += len(encoded) if type(encoded) is bytes else 0
                now = monotonic()
                if gathered >= ENOUGH or now - last > QUICK or now - sent_at > PATIENCE or waits.signalled:
                    connection.flush()
                    gathered, sent_at = 0, now
                    if codec.due:
                        codec.accelerate()
                    waits.look()
                    if self.stages.get(call):
                        raise Cancelled("the caller no longer wants the stream")
                last = now
            connection.post(_END, call, b"")
        except BaseException as error:
            waits.busy = 1
            self.close(items, error)
            raise
        finally:
            self.call = waits.busy = 0
            waits.signalled = False

    def close(self, items: "Any", error: BaseException) -> None:
        """Ends a generator that is not used up, with the reason; its own clean-up may run user code."""
        throw = getattr(items, "throw", None)
        if throw is None or getattr(items, "gi_frame", None) is None:
            return
        try:
            if isinstance(error, Cancelled):
                throw(error)
            items.close()
        except BaseException:  # the reason is `error`, whatever the clean-up says
            pass

    # --- what contexts ask for ---

    def current(self) -> Context:
        if not self.call:
            from .context import _no_context

            return _no_context()
        if self.context is None:
            deadline = None if self.left is None else self.arrived + self.left / 1000
            self.context = Context(self, self.call, deadline, self.options)
        return self.context

    def tell(self, context: Context, kind: int, value: "Any") -> None:
        self.waits.tell(context.call_id, kind, value)

    def stage(self, context: Context) -> int:
        return self.waits.stage(context.call_id)

    def host_call(self, context: Context, tool: str, args: "Any") -> "Any":
        return self.waits.host_call(context.call_id, tool, args)

    def host_stream(self, context: Context, tool: str, args: "Any") -> "Any":
        return self.waits.host_stream(context.call_id, tool, args)

    def on_cancel_signal(self, number: int, frame: "Any") -> None:
        self.waits.on_cancel_signal()
