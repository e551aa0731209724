"""A worker from its start to its end.

Owns the order of the steps: descriptors, HELLO, the user's code, READY, the loop, BYE.
"""

import os
import sys

import faulthandler

from . import __version__
from .frame import ERROR, FROM_HOST, HEADER_SIZE, HELLO, READY, Fault, explain, unpack_header, word_of
from .lifecycle import Life
from .message import read_hello, ready_message
from .transport.connection import Connection
from .value.codec import Codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any, Dict, List, NoReturn
else:
    import _signal  # the core of signal, without its enums

STACK_SIGNAL_OFFSET, CANCEL_SIGNAL_OFFSET, TASKS_SIGNAL_OFFSET = 10, 11, 12


def main(arguments: "List[str]") -> None:
    """Runs the worker that the arguments name, and ends the process."""
    if len(arguments) != 1:
        _usage("it takes one argument: a file (worker.py) or the name of a module")
    address = os.environ.pop("SNAKEPIT_GRPC", None)
    if address is not None:
        _prepare_streams()
        sys.argv[:] = arguments
        from .grpc.server import serve

        serve(arguments[0], address)
    fd = _descriptor("SNAKEPIT_FD")
    if fd is None:
        _usage("SNAKEPIT_FD is not set; a worker is started by a host, for example `snakepit up`")
    _prepare_streams()
    sys.argv[:] = arguments  # as a script would see them
    connection = Connection(fd)
    os.register_at_fork(after_in_child=connection.disown)
    life = Life(connection)
    try:
        try:
            hello = _hello(connection)
            runner, codec = _start(arguments[0], connection, life, hello)
            _ready(connection, codec, life)
            runner.run()
        except Fault as fault:
            life.fault(str(fault))
        life.bye()
        life.end()
    except KeyboardInterrupt:
        life.leave("interrupted")


def _usage(problem: str) -> "NoReturn":
    print(f"snakepit: {problem}\nusage: python -m snakepit WORKER", file=sys.stderr)
    sys.exit(2)


def _descriptor(name: str) -> "int | None":
    """Takes a descriptor from the environment. Later children of this process do not see it."""
    value = os.environ.pop(name, None)
    if value is None:
        return None
    if not value.isdigit():
        _usage(f"{name} is {value!r}, not the number of a descriptor")
    return int(value)


def _prepare_streams() -> None:
    """Prepares the standard streams. The worker may have been started without them."""
    try:
        faulthandler.enable()
    except (RuntimeError, AttributeError, ValueError, OSError):
        pass
    try:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    except AttributeError:
        pass


def _hello(connection: Connection) -> "Dict[str, Any]":
    """Reads the first frame, which says what the host expects."""
    while True:
        room = connection.end - connection.pos - HEADER_SIZE
        if room >= 0:
            length, word, _ = unpack_header(connection.buf, connection.pos)
            if word != word_of(HELLO):
                raise Fault(explain(word) if word not in FROM_HOST else "another frame before HELLO")
            if length <= room:
                break
        connection.fill()
    start = connection.pos + HEADER_SIZE
    hello = read_hello(connection.view[start : start + length])
    connection.pos = start + length
    connection.max_frame = hello["max_frame"]
    features = hello.get("features")
    connection.takes_items = type(features) is list and "items" in features
    return hello


def _start(worker: str, connection: Connection, life: Life, hello: "Dict[str, Any]") -> "Any":
    """Loads the user's code. The host learns of a failure, with the user's part of the traceback."""
    try:
        from .loader import load

        slate = _descriptor("SNAKEPIT_SLATE_FD")
        if slate is not None:
            life.map_slate(slate)
        beat = _descriptor("SNAKEPIT_BEAT_FD")
        if beat is not None:
            os.set_inheritable(beat, False)
        codec = Codec(os.environ.get("SNAKEPIT_CODEC", "auto"))
        load(worker)
        codec.worker_is_loaded()
        runner = _runner(connection, codec, life, hello)
        for hook in life.registry.start:
            life.run_hook(hook)
        # After the user's code, which may fork while it is loaded.
        if beat is not None and slate is not None:
            life.beat_when_asked(beat)
    except BaseException as error:
        _cannot_start(connection, error)
    return runner, codec


def _runner(connection: Connection, codec: Codec, life: Life, hello: "Dict[str, Any]") -> "Any":
    concurrency = hello.get("concurrency", 1)
    has_async = life.registry.has_async()
    if has_async or concurrency > 1:
        from .concurrent.loop import Concurrent

        return Concurrent(connection, codec, life, concurrency, has_async)
    from .serial.loop import Serial

    serial = Serial(connection, codec, life)
    if hasattr(_signal, "SIGRTMIN"):
        life.signals["cancel"] = _signal.SIGRTMIN + CANCEL_SIGNAL_OFFSET
        _signal.signal(life.signals["cancel"], serial.on_cancel_signal)
    return serial


def _cannot_start(connection: Connection, error: BaseException) -> "NoReturn":
    from .error import error_map
    from .value.encode import encode

    connection.post(word_of(ERROR), 0, encode(error_map(error, "start")))
    connection.flush()
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
    sys.exit(1)


def show_stacks(life: Life) -> None:
    """Installs the signals that write the stacks of threads and tasks, if the host has provided a place for them."""
    stacks = _descriptor("SNAKEPIT_STACK_FD")
    if stacks is not None and hasattr(_signal, "SIGRTMIN"):
        os.set_inheritable(stacks, False)
        faulthandler.register(_signal.SIGRTMIN + STACK_SIGNAL_OFFSET, file=stacks, all_threads=True)
        life.signals["stack"] = _signal.SIGRTMIN + STACK_SIGNAL_OFFSET
        # The handler runs Python, between two instructions of the main thread: a task that awaits cannot be found
        # otherwise. If that thread is blocked, the stacks of the threads show where.
        _signal.signal(_signal.SIGRTMIN + TASKS_SIGNAL_OFFSET, TaskTeller(life, stacks).on_signal)
        life.signals["tasks"] = _signal.SIGRTMIN + TASKS_SIGNAL_OFFSET


class TaskTeller:
    """Writes the stacks of tasks for the host, on a signal that may come again meanwhile."""

    def __init__(self, life: Life, stacks: int) -> None:
        self.life = life
        self.stacks = stacks
        self.is_asked = self.is_telling = False

    def on_signal(self, number: int, frame: "Any") -> None:
        self.is_asked = True
        while self.is_asked and not self.is_telling:
            self.is_telling, self.is_asked = True, False
            try:
                from .transport.task_stacks import write_tasks

                write_tasks(self.stacks, self.life.calls_with_tasks(), self.life.call_of_task, frame)
            except BaseException:  # a failure here must not reach the code that the signal has interrupted
                pass
            self.is_telling = False


def _ready(connection: Connection, codec: Codec, life: Life) -> None:
    show_stacks(life)
    encoded = codec.encode(ready_message(life, __version__), "ready", 1 << 32, False)
    connection.post(word_of(READY), 0, encoded)
    connection.flush()
