"""A small host that starts real worker processes and exchanges frames with them.

It reads and writes with the SDK's own codec, which the vectors check. Every wait has a limit, and none is a sleep.
"""

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SDK = os.path.join(ROOT, "python")
sys.path.insert(0, SDK)

from snakepit import frame as frames  # noqa: E402
from snakepit.value import decode, encode  # noqa: E402

LIMIT = 20.0
# Bytes of credit that no stream in these tests uses up.
MUCH = 1 << 40
HEADER = struct.Struct("<IBBHQ")
KINDS = {number: name for name, number in vars(frames).items() if name.isupper() and isinstance(number, int)}
for _other in ("VERSION", "BODIES", "HEADER_SIZE"):
    KINDS = {number: name for number, name in KINDS.items() if name != _other}
KINDS[1], KINDS[16] = "HELLO", "HOST_CANCEL"


class Frame:
    def __init__(self, kind, call, value, flags):
        self.kind, self.call, self.value, self.flags = kind, call, value, flags

    def __repr__(self):
        return f"{self.kind} call={self.call} {self.value!r}"


class Ended(Exception):
    """The worker has closed its socket."""


class Worker:
    """One worker process that runs `source`."""

    def __init__(self, source="", *, concurrency=1, env=None, slate=False, stack=False, beat=False, hello=True,
                 argument=None, files=None, max_frame=64 << 20, features=None, start="file", python=None, flags=(), cwd=None):
        self.directory = tempfile.TemporaryDirectory(prefix="snakepit-sdk-")
        for name, text in {"worker.py": source, **(files or {})}.items():
            with open(os.path.join(self.directory.name, name), "w") as file:
                file.write(textwrap.dedent(text))
        self.path = os.path.join(self.directory.name, "worker.py")
        self.socket, theirs = socket.socketpair()
        self.pending = b""
        # The items of an ITEMS, as if each had come in an ITEM, and how many of these frames there were.
        self.items = []
        self.shared_frames = 0
        self.next_call = 0
        environment = {**os.environ, "SNAKEPIT_FD": str(theirs.fileno()), **(env or {})}
        inherited = [theirs.fileno()]
        self.slate = self.stack = self.beat = None
        if slate or beat:
            self.slate = os.memfd_create("slate")
            os.truncate(self.slate, 4096)
            environment["SNAKEPIT_SLATE_FD"] = str(self.slate)
            inherited.append(self.slate)
        if stack:
            self.stack, write = os.pipe()
            environment["SNAKEPIT_STACK_FD"] = str(write)
            inherited.append(write)
        if beat:
            read, self.beat = os.pipe()
            environment["SNAKEPIT_BEAT_FD"] = str(read)
            inherited.append(read)
        command = [python or sys.executable, *flags]
        if start == "module":
            environment["PYTHONPATH"] = SDK
            command += ["-m", "snakepit"]
        else:
            command.append(os.path.join(SDK, "snakepit", "__main__.py") if start == "file" else start)
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [*command, argument or self.path], env=environment, pass_fds=inherited, cwd=cwd or self.directory.name,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        theirs.close()
        if stack:
            os.close(write)
        if beat:
            os.close(read)
        if hello:
            known = {"protocol": 1, "engine": "tests", "pool": "p", "worker": "p-1",
                     "concurrency": concurrency, "max_frame": max_frame}
            self.send("HELLO", 0, known if features is None else {**known, "features": features})

    # --- frames ---

    def send_bytes(self, data):
        self.socket.sendall(data)

    @staticmethod
    def frame(kind, call, value=b"", empty=False):
        number = kind if isinstance(kind, int) else getattr(frames, kind)
        if empty:
            return HEADER.pack(0, 1, number, 0, call)
        encoded = encode.encode(value)
        if isinstance(encoded, encode.Bodied):
            payload = struct.pack("<I", len(encoded.head)) + encoded.head + b"".join(map(bytes, encoded.raws))
            return HEADER.pack(len(payload), 1, number, 1, call) + payload
        return HEADER.pack(len(encoded), 1, number, 0, call) + encoded

    def send(self, kind, call, value):
        self.send_bytes(self.frame(kind, call, value))

    def send_empty(self, kind, call=0):
        self.send_bytes(self.frame(kind, call, empty=True))

    def more(self, limit=LIMIT):
        ready, _, _ = select.select([self.socket], [], [], limit)
        if not ready:
            raise TimeoutError(f"nothing from the worker for {limit} s")
        data = self.socket.recv(1 << 20)
        if not data:
            raise Ended
        self.pending += data

    def receive(self, limit=LIMIT):
        if self.items:
            return self.items.pop(0)
        while len(self.pending) < 16:
            self.more(limit)
        length, version, kind, flags, call = HEADER.unpack_from(self.pending)
        assert version == 1, version
        while len(self.pending) < 16 + length:
            self.more(limit)
        payload, self.pending = self.pending[16 : 16 + length], self.pending[16 + length :]
        bodies = None
        if flags & 1:
            stop = 4 + struct.unpack_from("<I", payload)[0]
            payload, bodies = payload[4:stop], payload[stop:]
        value = decode.decode(payload, bodies, 140) if payload else None
        if kind == frames.ITEMS:
            assert value, "an ITEMS without an item"
            self.shared_frames += 1
            self.items = [Frame("ITEM", call, item, 0) for item in value]
            return self.items.pop(0)
        return Frame(KINDS[kind], call, value, flags)

    def expect(self, kind, call=None, limit=LIMIT):
        frame = self.receive(limit)
        assert frame.kind == kind and (call is None or frame.call == call), f"wanted {kind} {call}, got {frame!r}"
        return frame

    def ready(self):
        frame = self.receive()
        assert frame.kind == "READY", f"{frame!r}\n{self.errors()}"
        return frame.value

    # --- calls ---

    def start(self, command, *args, deadline=None, options=None, **named):
        self.next_call += 1
        message = [command, list(args) if args else named, deadline]
        self.send("CALL", self.next_call, message if options is None else [*message, options])
        return self.next_call

    def call(self, command, *args, **named):
        number = self.start(command, *args, **named)
        frame = self.receive()
        assert frame.call == number, repr(frame)
        if frame.kind == "ERROR":
            raise CallError(frame.value)
        assert frame.kind == "RESULT", repr(frame)
        return frame.value

    def error(self, command, *args, **named):
        try:
            value = self.call(command, *args, **named)
        except CallError as error:
            return error.map
        raise AssertionError(f"{command} answered {value!r}")

    def stream(self, command, *args, credit=1000, **named):
        number = self.start(command, *args, options={"stream": [credit, MUCH]}, **named)
        items = []
        while True:
            frame = self.receive()
            assert frame.call == number
            if frame.kind == "ITEM":
                items.append(frame.value)
            elif frame.kind == "END":
                return items
            else:
                raise CallError(frame.value, items)

    # --- the end ---

    def drain(self):
        self.send_empty("DRAIN")
        return self.expect("BYE")

    def wait(self, limit=LIMIT):
        return self.process.wait(limit)

    def signal(self, number):
        self.process.send_signal(number)

    def errors(self):
        """Ends the worker, and returns what it has written to standard error."""
        self.socket.close()
        return self.process.communicate(timeout=LIMIT)[1].decode()

    def ask_beat(self):
        os.write(self.beat, b".")

    def beats(self):
        return struct.unpack("<Q", os.pread(self.slate, 8, 24))[0]

    def output(self):
        """Ends the worker, and returns its standard output."""
        self.socket.close()
        return self.process.communicate(timeout=LIMIT)[0].decode()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.socket.close()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()
        for fd in (self.slate, self.stack, self.beat):
            if fd is not None:
                os.close(fd)
        self.directory.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class CallError(Exception):
    def __init__(self, error, items=()):
        super().__init__(error.get("message"), error.get("traceback"))
        self.map = error
        self.items = list(items)


def until(condition, limit=LIMIT):
    """Polls for a state of another process that announces nothing, with short sleeps."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        select.select([], [], [], 0.001)


CANCEL_SIGNAL = signal.SIGRTMIN + 11
STACK_SIGNAL = signal.SIGRTMIN + 10
