"""Calls over gRPC: the concurrent loop with the threads of a gRPC server.

Owns how an RPC becomes a call of `concurrent/call.py` and how its outcome becomes a reply. A plain command runs in the
thread in which gRPC delivers its RPC: another thread would cost each call two thread switches. Streams run in a thread
of the loop's own, and async commands in its event loop, while the RPC's thread waits for their results.
"""

from _queue import SimpleQueue
from threading import Event, Lock, get_ident
from time import monotonic

from ..concurrent.call import Running
from ..concurrent.loop import Concurrent, current_call
from ..frame import ERROR, HOST_CALL, HOST_CANCEL, HOST_CREDIT, HOST_END, HOST_ERROR, HOST_ITEM, HOST_RESULT, LOG
from ..frame import PROGRESS, RESULT, TELEMETRY, word_of
from ..transport.connection import Connection
from ..transport.spans import begin, end
from ..value.codec import Codec
from ..value.error import BadPayload
from .messages import CallReply, Error, FromWorker, Value, value_reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, Optional

    from ..lifecycle import Life
    from ..value.encode import Encoded

# The items and bytes that a stream may have ready for gRPC, which takes the next message when the flow control of
# HTTP/2 has let the previous one through.
AHEAD = [16, 256 << 10]
# Without a deadline, gRPC reports one in about a hundred years.
NEVER = 1e8
_RESULT, _ERROR = word_of(RESULT), word_of(ERROR)
# An error that is too long for a reply is cut to this fraction of the limit.
SHORT = 16


class Post(Connection):
    """Replaces the socket: what the loop sends besides its answers goes to the host through Link."""

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        self.parts = []
        self.forked = False
        self.gone = self._nobody
        # Serialized messages; None is the last one.
        self.link: "SimpleQueue[Optional[bytes]]" = SimpleQueue()

    def descriptor(self) -> None:
        return None

    def post(self, word: int, call: int, encoded: "Encoded") -> None:
        if word >> 8 & 0xFF == HOST_CALL:
            assert type(encoded) is bytes
            self.link.put(encoded)

    def say(self, call: int, **said: "Any") -> None:
        self.link.put(FromWorker(call=call, **said).SerializeToString())

    def flush(self) -> None:
        pass

    def nudge(self) -> None:
        pass

    def disown(self) -> None:
        """Gives up the connection in a forked child: the server and its threads belong to the parent."""
        self.forked = True
        self.post = self.say = self.leave_child  # type: ignore[assignment,method-assign]


class Inline(Codec):
    """A codec that leaves long byte strings in the value, because gRPC copies them anyway."""

    def __init__(self, choice: str) -> None:
        super().__init__(choice)
        if self.name == "python":
            self._put_inline()

    def accelerate(self) -> None:
        super().accelerate()
        self._put_inline()

    def _put_inline(self) -> None:
        encode = self.encode
        self.encode = lambda value, root="result", limit=1 << 32, bodies=True: encode(value, root, limit, False)


class RpcCall(Running):
    """A call and its RPC."""

    loop: "Calls"

    def __init__(self, loop: "Calls", request: "Any", args: "Any", left: float, streams: bool) -> None:
        options: "Dict[str, Any]" = {}
        if streams:
            options["stream"] = AHEAD
        if request.HasField("session"):
            options["session"] = request.session
        if request.metadata:
            options["metadata"] = dict(request.metadata)
        if request.HasField("nested"):
            options["nested"] = request.nested
        if request.HasField("traceparent"):
            state = [request.tracestate] if request.HasField("tracestate") else []
            options["trace"] = [request.traceparent, *state]
        milliseconds = None if left > NEVER else left * 1000
        super().__init__(loop, request.call, [request.command, args, milliseconds, options], monotonic(), False)
        self.streams = streams
        # Released when a plain call may run, or when a call that runs elsewhere is answered.
        self.turn = Lock()
        self.turn.acquire()
        # A message, or its bytes.
        self.reply: "Any" = None
        if streams:
            # Replies with their sizes; None after the last one.
            self.replies: "SimpleQueue[Any]" = SimpleQueue()
        self.telemetry: "list[Any]" = []
        # The number of messages that it has sent through Link.
        self.said = 0
        # Whether the host wants to know when the call is over.
        self.is_asked_for = False

    def run(self) -> None:
        """Runs the call. A plain call takes a shorter way: most calls are plain, and every step costs time in a thread
        of gRPC."""
        if self.streams:
            super().run()
            return
        self.thread = get_ident()
        loop = self.loop
        attached = begin(self.options) if "trace" in self.options else None
        try:
            try:
                command = self.check()
                self.unshield()
                value = command.run(self.args)
                self.shield()
            except BaseException:
                self._settle()
                raise
            word, outcome = _RESULT, loop.codec.encode(value, "result", loop.connection.max_frame)
        except BaseException as error:
            self._settle()
            word, outcome = _ERROR, loop.failure(error)
        if attached is not None:
            end(attached)
        if loop.connection.forked:
            loop.connection.leave_child()
        self.settle(word, outcome)

    # --- cancel and credit: these come in threads of gRPC, while tasks live in the event loop's thread ---

    def rpc_is_over(self) -> None:
        """Reacts to the end of the RPC: the host ended it, its deadline passed, or it was answered."""
        if self.loop.calls.get(self.call) is self:
            self.cancel(1)

    def cancel(self, stage: int) -> None:
        self.loop.in_loop(self.is_async, super().cancel, stage)

    def add_credit(self, message: "Any") -> None:
        self.loop.in_loop(self.is_async, super().add_credit, message)

    # --- messages to the host ---

    def send_item(self, item: "Any") -> None:
        encoded = self.loop.codec.encode(item, "item", self.loop.connection.max_frame)
        assert type(encoded) is bytes
        with self.lock:
            self.credit -= 1
            self.room -= len(encoded)
        self.replies.put((value_reply(encoded), len(encoded)))

    def settle(self, word: int, outcome: "Any") -> None:
        """Answers the call: with a value, an error, or the end of a stream."""
        has_more = bool(self.telemetry or self.said)
        if word == _RESULT:
            self.reply = CallReply(value=Value(data=outcome)) if has_more else value_reply(outcome)
        elif word == _ERROR:
            self.reply = CallReply(error=outcome)
        if has_more:
            if self.reply is None:
                self.reply = CallReply()
            self.reply.telemetry.extend(self.telemetry)
            self.reply.said = self.said
        if self.streams:
            if self.reply is not None:
                self.replies.put((self.reply, 0))
            self.replies.put(None)
        elif self.is_async:
            self.turn.release()

    def say(self, **said: "Any") -> None:
        with self.lock:
            self.said += 1
        self.loop.connection.say(self.call, **said)

    def ask(self, message: "Encoded") -> None:
        with self.lock:
            self.said += 1
        super().ask(message)

    def send(self, kind: int, value: "Any") -> None:
        if kind == TELEMETRY:
            self.telemetry.append(Value(data=self._encoded(value)))
        elif kind == PROGRESS:
            fraction, text = value
            self.say(progress={"fraction": fraction, "text": text})
        elif kind == LOG:
            level, text, fields = value
            self.say(log={"level": level, "text": text, "fields": {"data": self._encoded(fields)}})
        elif kind == HOST_CREDIT:
            number, items, size = value
            self.say(tool_credit={"id": number, "more": {"items": items, "bytes": size}})
        elif kind == HOST_CANCEL:
            self.withdraw(value[0])

    def _encoded(self, value: "Any") -> "Any":
        return self.loop.codec.encode(value, "value", self.loop.connection.max_frame, False)

    def withdraw(self, number: int) -> None:
        self.say(tool_cancel=number)

    def tool_message(self, number: int, tool: str, args: "Any", options: "Any") -> bytes:
        if type(tool) is not str:
            raise TypeError(f"the name of a host's tool is a text, not {type(tool).__name__}")
        encoded = self.loop.codec.encode(args, "args", self.loop.connection.max_frame)
        asked: "Dict[str, Any]" = {"id": number, "tool": tool, "args": {"data": encoded}}
        options = options or {}
        if "stream" in options:
            items, size = options["stream"]
            asked["stream"] = {"items": items, "bytes": size}
        if "trace" in options:
            asked["traceparent"], *state = options["trace"]
            if state:
                asked["tracestate"] = state[0]
        message: bytes = FromWorker(call=self.call, tool_call=asked).SerializeToString()
        return message


class Calls(Concurrent):
    """The calls of a worker that is a gRPC server."""

    connection: Post

    def __init__(self, connection: Post, codec: Inline, life: "Life", limit: int, has_async: bool) -> None:
        super().__init__(connection, codec, life, limit, has_async)
        self.drained = Event()
        self.wake = self.drained.set

    def run(self) -> None:
        """Serves until the host is done with this worker and the last call is over."""
        if self.tasks is not None:
            self.tasks.run()
        else:
            self.drained.wait()

    def drain(self) -> None:
        self.draining = True
        if self.is_idle():
            self.wake()

    def in_loop(self, is_async: bool, function: "Callable[..., Any]", *args: "Any") -> None:
        """Calls the function in the thread of the event loop if the call lives there, otherwise in this thread."""
        if is_async and self.tasks is not None and get_ident() != self.tasks.thread:
            self.tasks.loop.call_soon_threadsafe(function, *args)
        else:
            function(*args)

    # --- RPCs, each in its own thread ---

    def call(self, request: "Any", context: "Any") -> "Any":
        running = self._accept(request, context, False)
        if type(running) is not RpcCall:
            return running
        self._begin_rpc(running, context)
        running.turn.acquire()
        if not running.is_async:
            current_call.set(running)
            running.run()
            current_call.set(None)
            self.over(running)
        return running.reply

    def stream(self, request: "Any", context: "Any") -> "Iterator[Any]":
        running = self._accept(request, context, True)
        if type(running) is not RpcCall:
            yield running
            return
        self._begin_rpc(running, context)
        while True:
            reply = running.replies.get()
            if reply is None:
                return
            yield reply[0]
            running.add_credit([1, reply[1]])

    def _accept(self, request: "Any", context: "Any", streams: bool) -> "Any":
        """Returns the call, or the reply to a call that cannot be made."""
        codec = self.codec
        if codec.due:
            codec.accelerate()
        try:
            args = codec.decode(request.args.data)
        except BadPayload as bad:
            return CallReply(error=self.failure(bad))
        return RpcCall(self, request, args, context.time_remaining(), streams)

    def _begin_rpc(self, running: RpcCall, context: "Any") -> None:
        self._begin(running)
        # Registered only after the call is in the table, where the callback looks for it. The RPC may be over already.
        if not context.add_callback(running.rpc_is_over):
            running.cancel(1)

    def _launch(self, running: Running) -> None:
        assert type(running) is RpcCall
        if running.streams or running.is_async:
            super()._launch(running)
        else:
            running.turn.release()

    def answer(self, call: int, word: int, encoded: "Any") -> None:
        if self.connection.forked:
            self.connection.leave_child()
        running = self.calls[call]
        assert type(running) is RpcCall
        running.settle(word, encoded)

    def _is_for_thread(self, running: Running) -> bool:
        """Reports whether a thread of the loop may run the call. Calls that do not stream have the threads of their
        RPCs."""
        assert type(running) is RpcCall
        return running.streams and not running.is_async

    def _end(self, running: Running) -> "Optional[Running]":
        following = super()._end(running)
        assert type(running) is RpcCall
        # The host can have asked only while the call was in the table: both sides check under the lock.
        if running.is_asked_for:
            self.connection.say(running.call, ended={})
        return following

    def failure(self, error: BaseException, around: int = 0) -> "Any":
        if self.connection.forked:
            self.connection.leave_child(error)
        from ..error import error_map

        whole = error_map(error)
        made = error_message(whole)
        if made.ByteSize() <= self.connection.max_frame:
            return made
        message = whole["message"][: self.connection.max_frame // SHORT]
        return error_message({"kind": whole["kind"], "type": whole["type"][:100], "message": message + "…"})

    # --- Link, in the thread that reads it ---

    def cancel(self, call: int, stage: int) -> None:
        """Cancels a call whose RPC the host has ended. The host wants to know when the call is over."""
        with self.lock:
            running = self.calls.get(call)
            if running is not None:
                assert type(running) is RpcCall
                running.is_asked_for = True
        if running is None:
            self.connection.say(call, ended={})
        else:
            running.cancel(stage)

    def tool_answered(self, answer: "Any") -> None:
        waiter = self.waiters.get(answer.id)
        if waiter is None:
            return
        which = answer.WhichOneof("answer")
        heard: "Any"
        if which == "error":
            heard = (HOST_ERROR, error_of(answer.error), 0)
        elif which == "end":
            heard = (HOST_END, None, 0)
        else:
            data = getattr(answer, which).data
            kind = HOST_RESULT if which == "value" else HOST_ITEM
            try:
                heard = (kind, self.codec.decode(data), len(data))
            except BadPayload as bad:
                heard = (HOST_ERROR, {"kind": "bad_payload", "message": str(bad)}, 0)
        self.in_loop(True, waiter, heard)


_PLAIN = ("kind", "type", "message", "traceback", "notes", "nearest", "parameter", "path")


def error_message(error: "Dict[str, Any]") -> "Any":
    """Converts an error map to a message."""
    made = Error(**{key: error[key] for key in _PLAIN if key in error})
    if "cause" in error:
        made.cause.CopyFrom(error_message(error["cause"]))
    return made


def error_of(message: "Any") -> "Dict[str, Any]":
    """Converts a message to the error map that `HostError` shows."""
    error: "Dict[str, Any]" = {"kind": message.kind, "message": message.message}
    for key in ("type", "traceback", "parameter", "path"):
        if message.HasField(key):
            error[key] = getattr(message, key)
    for key in ("notes", "nearest"):
        if getattr(message, key):
            error[key] = list(getattr(message, key))
    if message.HasField("cause"):
        error["cause"] = error_of(message.cause)
    return error
