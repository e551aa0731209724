"""The commands of docs/adapters-contract.md without the SDK, for workers with a protocol of their own.

Each function gets the call (its data besides the arguments, and `cancelled()`) and its arguments by name. A generator
is a stream; it is closed when its reader is gone.
"""

import fcntl
import inspect
import os
import signal
import subprocess
import sys
import time
import traceback


class ConformanceError(Exception):
    pass


class Cancelled(Exception):
    pass


def begin():
    """Does what the host has requested through the environment."""
    way = os.environ.get("CONFORMANCE_WAY", "ready")
    if way == "never-ready":
        signal.pause()
    if way == "ends-before-ready":
        print("no, thank you", file=sys.stderr, flush=True)
        os._exit(3)
    signal.signal(signal.SIGTERM, at_term)


deaf = False


def at_term(number, frame):
    if not deaf:
        os._exit(143)


def note(path, line):
    with open(path, "a") as file:
        file.write(line + "\n")


def echo(call, value):
    return value


def add(call, a, b):
    return a + b


def deep_inside(message):
    raise ConformanceError(message)


def fail(call, message):
    deep_inside(message)


def fail_because(call, message):
    try:
        raise ValueError("the root of it")
    except ValueError as cause:
        raise ConformanceError(message) from cause


def count(call, n):
    yield from range(n)


def count_and_fail(call, n, message):
    yield from range(n)
    deep_inside(message)


def count_for_ever(call, made, size):
    try:
        with open(made, "a") as file:
            while not call.cancelled():
                file.write(".")
                file.flush()
                yield "x" * size
            raise Cancelled
    except BaseException:
        note(made + ".ended", "cancelled")
        raise


def wait(call, started, release):
    note(started, "started")
    while not os.path.exists(release):
        if call.cancelled():
            note(started, "cancelled")
            raise Cancelled
        time.sleep(0.01)
    return "released"


def stubborn(call, started):
    global deaf
    deaf = True
    note(started, "started")
    while True:
        time.sleep(600)


def exit(call, status):
    os._exit(status)


def die(call):
    os.kill(os.getpid(), signal.SIGKILL)


def leave_child(call, lock):
    file = open(lock, "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    sleeper = [sys.executable, "-c", "import signal; signal.signal(15, 1); signal.pause()"]
    null = subprocess.DEVNULL
    subprocess.Popen(
        sleeper, start_new_session=True, pass_fds=[file.fileno()], stdin=null, stdout=null, stderr=null
    )


def deadline(call):
    return call.remaining_ms


def session(call):
    return call.session


def metadata(call):
    return call.metadata


COMMANDS = {
    function.__name__: function
    for function in (
        echo, add, fail, fail_because, count, count_and_fail, count_for_ever, wait, stubborn, exit, die, leave_child,
        deadline, session, metadata,
    )
}


def unknown(name):
    message = f"there is no command {name}; there is {', '.join(COMMANDS)}"
    return {"kind": "unknown_command", "type": "UnknownCommand", "message": message}


def is_stream(function):
    return inspect.isgeneratorfunction(function)


def told(error):
    """Converts an exception for the host."""
    if isinstance(error, Cancelled):
        return {"kind": "cancelled", "message": "it was cancelled"}
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    said = {"type": type(error).__name__, "message": str(error), "traceback": "".join(lines)}
    if error.__cause__ is not None:
        said["cause"] = {"kind": "exception", **told(error.__cause__)}
    return said
