"""The serial loop: one call at a time, without threads and without an event loop.

Owns the common case, a worker with `concurrency` 1 and sync commands, and is written for speed. It processes what the
socket has brought frame by frame, and sends the answers together when nothing is left. When the code of a call waits
(for credit, for a tool of the host) or asks whether it is cancelled, it reads the socket from inside the call: cancels
are recorded, calls queued, and nested calls served at once. `wait.py` has that half. `stream.py`, `map.py` and
`batch.py` have what not every worker needs, and are imported only for that.
"""

from time import monotonic

from ..context import Cancelled, Context, Runner, serve_contexts
from ..frame import CALL, CALLS, ERROR, FROM_HOST, HEADER_SIZE, RESULT, Fault, explain, split_bodies
from ..frame import pack_header, unpack_header, word_of
from ..message import STREAM_CREDIT
from ..transport.connection import BASE_SIZE
from ..transport.flusher import Flusher
from ..transport.slate import nowhere, places
from ..value.decode import MAX_DEPTH
from ..value.encode import NUMBERS, SHORT, TEXTS
from ..value.error import BadPayload
from .wait import Waits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

    from ..commands.registry import Command
    from ..lifecycle import Life
    from ..transport.connection import Connection
    from ..value.codec import Codec
    from ..value.encode import Encoded
else:
    from _collections import deque  # the class of collections.deque, without the rest of collections

_CALL = word_of(CALL)
_CALLS = word_of(CALLS)
_RESULT = word_of(RESULT)
_ERROR = word_of(ERROR)
# The array around a call's arguments is not a level of the value, and neither is the array of arrays in CALLS.
_CALL_DEPTH = MAX_DEPTH + 1
_CALLS_DEPTH = MAX_DEPTH + 2

# A payload with so few bytes cannot be nested too deeply.
SMALL = MAX_DEPTH
# Calls up to this size take the fast path. The cost of larger calls lies elsewhere.
MEDIUM = 16 * 1024
QUICK = 0.0001
PATIENCE = 0.001
ENOUGH = 32 * 1024
MOST_PARTS = 512


class Serial(Runner):
    """Runs calls in the order in which they arrive."""

    def __init__(self, connection: "Connection", codec: "Codec", life: "Life") -> None:
        self.connection = connection
        self.codec = codec
        self.life = life
        self.commands = life.registry.commands
        self.slate = life.slate
        self.place = (places(life.page) or [nowhere()])[0]
        self.finished = 0
        self.limit = connection.max_frame
        self.flusher = Flusher(connection)
        self.draining = False
        self.queue: "Deque[Tuple[int, int, bytes, float]]" = deque()
        # The call that runs now. While it is set and `waits.busy` is 0, a cancel may be raised at any instruction. So
        # nothing that must not be interrupted, above all no write to the socket, is done then.
        self.call = 0
        self.arrived = 0.0
        self.message: "Any" = None
        self.context: "Optional[Context]" = None
        self.stages: "Dict[int, int]" = {}
        self.waits = Waits(self)
        serve_contexts(self.current)

    # --- the loop ---

    def run(self) -> None:
        """Serves until the host drains this worker."""
        while True:
            try:
                self._loop()
                return
            except Cancelled as late:
                # It was raised just when the call had ended, before that was recorded.
                call, self.call, self.waits.busy = self.call, 0, 0
                if not call:
                    raise
                self.fail(call, late)
                self.over(call)

    def _loop(self) -> None:
        connection, codec, queue, stages, slate = self.connection, self.codec, self.queue, self.stages, self.slate
        plain = {name: command for name, command in self.commands.items() if not command.streams}
        max_frame, parts, lock = connection.max_frame, connection.parts, connection.lock
        receive, send = connection.socket.recv_into, connection.socket.send
        flusher = self.flusher
        texts = TEXTS if max_frame > 4 * SHORT else ()
        before = 0.0
        while True:
            if queue:
                if codec.due and not parts:
                    codec.accelerate()
                word, call, kept, self.arrived = queue.popleft()
                self.start(word, call, memoryview(kept))
                before = monotonic()
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
                    if word != _CALL or length > MEDIUM:
                        if word not in FROM_HOST:
                            raise Fault(explain(word))
                        self.start(word, call, connection.view[pos:stop])
                        before = monotonic()
                        continue
                    try:
                        if length <= SMALL:
                            # Copying a few bytes costs less than another view of them.
                            message = codec.read_small(connection.buf[pos:stop])
                        else:
                            message = codec.decode(connection.view[pos:stop], None, _CALL_DEPTH)
                    except Exception:
                        message = None
                    # Never inside an `except`: ours would become the cause of a call's exceptions.
                    if message is None:
                        self.start(word, call, connection.view[pos:stop])
                        continue
                    try:
                        name, args, left = message
                        command = plain.get(name)
                        # `before` is the end of the previous call, or the read, and serves as the current time.
                        if stages or left is not None and self.arrived + left / 1000 <= before:
                            command = None
                    except (TypeError, ValueError):
                        command = None
                    if command is None:
                        if parts:
                            self.hold(message)
                        self.serve(call, message)
                        frame = None
                    else:
                        if parts and (command.peak > QUICK or not flusher.awake or len(parts) > MOST_PARTS):
                            self.hold(message)
                        # Does what `serve` does, without what a plain call of a known command does not need.
                        self.message = message
                        self.context = frame = None
                        try:
                            slate[0] = self.call = call
                            only = command.only
                            if only is not None and type(args) is dict and len(args) == 1 and only in args:
                                value = args[only]
                                if command.checks and type(value) not in command.checks[0][1]:
                                    value = command.fit(only, value)
                                value = command.function(value)
                            elif command.is_direct and type(args) is dict:
                                for key, accepted in command.checks:
                                    if key in args and type(args[key]) not in accepted:
                                        args[key] = command.fit(key, args[key])
                                value = command.function(**args)
                            else:
                                value = command.run(args)
                            kind = type(value)
                            encoded = None
                            if kind in NUMBERS or kind in texts and len(value) < SHORT:
                                try:
                                    encoded = codec.write_small(value)
                                except Exception:  # a big integer, or text that `encode` explains
                                    pass
                            if encoded is None:
                                encoded = codec.encode(value, "result", max_frame)
                            self.call = 0
                        except BaseException as error:
                            self.call = 0
                            self.fail(call, command.explain(error, args))
                        else:
                            if type(encoded) is bytes:
                                frame = pack_header(len(encoded), _RESULT, call) + encoded
                            else:
                                connection.post(_RESULT, call, encoded)
                        self.finished = slate[2] = self.finished + 1
                    if length != room:
                        # More frames were there when this call began: its duration shows whether answers may wait for
                        # it.
                        now = monotonic()
                        if now - before > QUICK:
                            self.took(message, now - before)
                        before = now
                        if frame is not None:
                            parts.append(frame)
                    elif frame is not None:
                        if parts:
                            parts.append(frame)
                            continue
                        # Alone: nothing else waits to be sent or done.
                        is_shared = connection.is_shared
                        if is_shared:
                            lock.acquire()
                        try:
                            sent = send(frame)
                        except OSError:
                            sent = 0
                        if sent != len(frame):
                            parts.insert(0, frame[sent:])
                        if is_shared:
                            lock.release()
                    continue
            if self.draining:
                return
            if parts:
                connection.flush()
            if codec.due:
                codec.accelerate()
            if room != -HEADER_SIZE or connection.size != BASE_SIZE:
                large = connection.take_large() if room == -HEADER_SIZE else None
                if large is None:
                    connection.fill()
                    self.arrived = before = connection.arrived
                else:
                    self.arrived = connection.arrived
                    self.start(*large)
                    before = monotonic()
                continue
            # Everything is consumed, and the buffer has its usual size: a short form of `fill`.
            try:
                connection.pos = connection.end = 0
                connection.end = receive(connection.view)
            except OSError:
                pass
            self.arrived = connection.arrived = before = monotonic()
            if not connection.end:
                connection.gone()

    def start(self, word: int, call: int, payload: memoryview, bodies: "Optional[bytes]" = None) -> None:
        """Handles a frame that is not a small call, or that was kept while another call ran. `bodies`: the bodies,
        if they came separately."""
        kind = word >> 8 & 0xFF
        if kind != CALL and kind != CALLS:
            self.waits.take(word, call, payload)
            return
        beside: "Any" = bodies
        if word >> 16 and bodies is None:
            payload, beside = split_bodies(payload)
        try:
            message = self.codec.decode(payload, beside, _CALL_DEPTH if kind == CALL else _CALLS_DEPTH)
        except BadPayload as bad:
            self.fail(call, bad)
            return
        if self.connection.parts:
            self.hold(message)
        if kind == CALL:
            before = monotonic()
            self.serve(call, message)
        else:
            from .map import serve_map

            before = monotonic()
            serve_map(self, call, message)
        self.took(message, monotonic() - before)

    def hold(self, message: "Any") -> None:
        """Sends the answers that wait, unless the next command is known to be quick. Then the flusher watches them."""
        connection = self.connection
        try:
            command = self.commands[message[0]]
            is_quick = command.peak <= QUICK
            if not is_quick:
                command.peak /= 2  # the memory fades step by step, unless the command is slow again
        except (LookupError, TypeError):
            is_quick = False
        if not is_quick or len(connection.parts) > MOST_PARTS:
            connection.flush()
        elif not self.flusher.awake:
            self.flusher.watch()

    def took(self, message: "Any", seconds: float) -> None:
        """Remembers how long a command takes. After a long call, checks what has come, which may be a cancel."""
        try:
            command = self.commands[message[0]]
            command.peak = max(seconds, command.peak)
        except (LookupError, TypeError):
            pass
        if seconds > PATIENCE:
            self.waits.look()

    # --- calls ---

    def serve(self, call: int, message: "Any") -> None:
        """Handles a CALL of any kind, from its arguments to its answer."""
        try:
            if type(message) is not list:
                raise TypeError
            name, args, left, options = message if len(message) == 4 else [*message, None]
            command = self.commands.get(name)
        except (TypeError, ValueError):
            raise Fault("a CALL that is not [command, args, deadline, options]") from None
        self.message = message
        self.context = attached = None
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
            if stream is not None:
                from .stream import serve_stream
            is_traced = options and "trace" in options
            if is_traced:
                from ..transport.spans import begin, end
            # From here on, a cancel may raise in this call, and must not do so in the midst of an import.
            self.slate[0] = self.call = call
            if is_traced:
                attached = begin(options)
            if stream is not None:
                serve_stream(self, call, command, args, stream)
            else:
                encoded = self.codec.encode(command.run(args), "result", self.limit)
                self.call = 0
                self.connection.post(_RESULT, call, encoded)
                if type(encoded) is bytes and len(encoded) > ENOUGH:
                    self.connection.flush()
        except BaseException as error:
            self.call = 0
            self.fail(call, error)
        if attached is not None:
            end(attached)
        self.over(call)

    def over(self, call: int) -> None:
        self.call = 0
        self.message = None  # so that large arguments are not kept until the next call
        self.stages.pop(call, None)
        self.waits.credits.pop(call, None)
        self.finished = self.slate[2] = self.finished + 1

    def fail(self, call: int, error: BaseException) -> None:
        """Answers with the error."""
        self.connection.post(_ERROR, call, self.failure(error))

    def failure(self, error: BaseException, around: int = 0) -> bytes:
        """Returns the bytes of the error. They leave `around` bytes of the frame free."""
        if self.connection.forked:
            self.connection.leave_child(error)
        from ..error import encode_error

        return encode_error(self.codec, error, self.limit - around)

    def plain_command(self, name: "Any") -> "Command":
        """Returns a command that does not stream."""
        command = self.commands.get(name) or self.life.engine_command(name)
        if command.streams:
            raise self.life.streaming(name)
        return command

    # --- what contexts need ---

    def current(self) -> Context:
        if not self.call:
            from ..context import _no_context

            return _no_context()
        if self.context is None:
            left = self.message[2]
            deadline = None if left is None else self.arrived + left / 1000
            self.context = Context(self, self.call, deadline, self.message[3] if len(self.message) > 3 else None)
        return self.context

    def tell(self, context: Context, kind: int, value: "Any") -> None:
        self.waits.tell(context.call_id, kind, value)

    def stage(self, context: Context) -> int:
        return self.waits.stage(context.call_id)

    def host_call(self, context: Context, tool: str, args: "Any") -> "Any":
        return self.waits.host_call(context.call_id, tool, args, self.outgoing(context, None))

    def host_stream(self, context: Context, tool: str, args: "Any") -> "Any":
        options = self.outgoing(context, {"stream": STREAM_CREDIT})
        return self.waits.host_stream(context.call_id, tool, args, options)

    def outgoing(self, context: Context, options: "Any") -> "Any":
        """Adds the trace of the call to the options of a tool call."""
        self.waits.enter()
        try:
            # A cancel waits until the import is over.
            from ..transport.spans import outgoing
        finally:
            self.waits.exit()
        return outgoing(context, options)

    def on_cancel_signal(self, number: int, frame: "Any") -> None:
        self.waits.on_cancel_signal()
