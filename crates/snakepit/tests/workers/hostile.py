"""Commands that go wrong in every way, for a worker that executes one call at a time."""

import ctypes
import importlib.util
import os
import signal
import subprocess
import sys
import time

import snakepit


@snakepit.command
def echo(value):
    return value


@snakepit.command
def text(length: int):
    return "x" * length


@snakepit.command
def pid():
    return os.getpid()


@snakepit.command
def codec():
    """Returns the codec in use, and whether msgspec is available."""
    return [snakepit.context()._runner.codec.name, importlib.util.find_spec("msgspec") is not None]


@snakepit.command
def sleep(seconds: float):
    time.sleep(seconds)
    return seconds


marks = {}


@snakepit.command
def mark(path: str, key: str):
    """Leaves a line, so a call that runs twice leaves two. Quick, so that the engine sends it ahead."""
    if path not in marks:
        marks[path] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(marks[path], key.encode() + b"\n")
    return key


@snakepit.command
def mark_and_sleep(path: str, key: str, seconds: float):
    mark(path, key)
    if seconds:
        time.sleep(seconds)
    return key


@snakepit.command
def ignore_term():
    """From now on, only KILL ends the worker."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@snakepit.command
def mark_and_die(path: str, key: str):
    mark(path, key)
    os.kill(os.getpid(), signal.SIGKILL)


@snakepit.command
def mark_or_die(path: str, key: int, fatal: int):
    mark(path, str(key))
    if key == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    return key


@snakepit.command
def slam(path: str, key: str, seconds: float):
    """Closes the socket of the SDK and lives on."""
    mark(path, key)
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                os.close(int(fd))
        except OSError:
            pass
    time.sleep(seconds)


@snakepit.command
def end(how: str):
    if how == "sys.exit":
        sys.exit(5)
    if how == "os._exit":
        os._exit(5)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "abort":
        os.abort()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hoard":
        return len([bytearray(b"x" * (1 << 20)) for _ in range(400)])
    if how == "stack overflow":
        sys.setrecursionlimit(1 << 30)
        return overflow(0)
    if how == "recursion":
        return overflow(0)
    if how == "MemoryError":
        return bytearray(1 << 60)
    if how == "KeyboardInterrupt":
        raise KeyboardInterrupt
    raise ValueError(how)


class Nest:
    """Recursion through C code, which exhausts the stack of the process."""

    def __getattr__(self, name):
        return getattr(self, name + "x")


def overflow(depth):
    return getattr(Nest(), "x") if sys.getrecursionlimit() > 1 << 20 else overflow(depth + 1)


@snakepit.command
def family(count: int):
    """Starts children in sessions of their own, which outlive everything but force."""
    sleeper = [sys.executable, "-c", "import signal; signal.signal(15, 1); signal.pause()"]
    return [subprocess.Popen(sleeper, start_new_session=True).pid for _ in range(count)]


@snakepit.command
def flood(lines: int):
    for number in range(lines):
        print(f"line {number} " + "x" * 200)
        print(f"err {number}", file=sys.stderr)
    return lines


@snakepit.command
def says(text: str):
    print(text, flush=True)
    return os.getpid()


@snakepit.command
def fork_and_return():
    """The child also returns from the command."""
    return os.fork() == 0


@snakepit.command
def holds_the_gil(seconds: int):
    libc = ctypes.PyDLL(None)
    # A signal, such as the one that requests the stack, interrupts a sleep.
    while seconds > 0:
        seconds = libc.sleep(seconds)


def time_of_power():
    began = time.monotonic()
    pow(3, 500_000)
    return time.monotonic() - began


@snakepit.command
def powers(seconds: int):
    """Holds the GIL and computes: one power that takes about that long."""
    # The quickest of several: one that had to wait for the CPU would make the power far too short.
    took = min(time_of_power() for _ in range(5))
    pow(3, int(500_000 * (seconds / took) ** (1 / 1.585)))


@snakepit.command
def busy(path: str):
    """Pure Python that never waits. Records how it ended."""
    mark(path, "started")
    number = 0
    try:
        while True:
            number += 1
    except BaseException as error:
        mark(path, type(error).__name__)
        raise


@snakepit.command
def sleepy(path: str):
    mark(path, "started")
    try:
        time.sleep(600)
    except BaseException as error:
        mark(path, type(error).__name__)
        raise


@snakepit.command
def watchful(path: str):
    """Checks the flag."""
    mark(path, "started")
    while not snakepit.context().cancelled:
        time.sleep(0.001)
    mark(path, "saw the flag")
    return "stopped by itself"


@snakepit.command
def waits_for_term(path: str):
    """Swallows the exception, but ends on TERM."""

    def on_term(number, frame):
        mark(path, "TERM")
        os._exit(0)

    signal.signal(signal.SIGTERM, on_term)
    stubborn_loop(path)


@snakepit.command
def stubborn(path: str):
    """Swallows everything that can be swallowed."""
    signal.signal(signal.SIGTERM, lambda number, frame: mark(path, "TERM"))
    stubborn_loop(path)


def stubborn_loop(path):
    mark(path, "started")
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException as error:
            mark(path, type(error).__name__)


@snakepit.command
def count(n: int):
    yield from range(n)


@snakepit.command
def counted(path: str):
    """Streams without end; a file shows its progress."""
    try:
        number = 0
        while True:
            with open(path, "w") as file:
                file.write(str(number))
            yield number
            number += 1
    except BaseException as error:
        mark(path + ".end", type(error).__name__)
        raise


@snakepit.command
def bad_item(good: int):
    yield from range(good)
    yield {"rows": [1, {"price": object()}]}
    yield "never"


@snakepit.command
def bad_result():
    return {"rows": [1, {"price": object()}]}


@snakepit.command
def blobs(n: int, size: int, path: str):
    """Records how many it has made before it sends each."""
    for number in range(n):
        with open(path, "w") as file:
            file.write(str(number + 1))
        yield number.to_bytes(4, "little") * (size // 4)


@snakepit.command
def failing_stream(good: int):
    yield from range(good)
    raise ValueError("no more")


@snakepit.command
def dying_stream(good: int):
    yield from range(good)
    os.kill(os.getpid(), signal.SIGKILL)


@snakepit.command
def memory():
    """Returns the resident memory of this process, in KiB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@snakepit.command
def sleeps_in_c(seconds: int):
    """Holds the GIL until a signal interrupts the sleep."""
    return ctypes.PyDLL(None).sleep(seconds)


@snakepit.command
def large_or_die(size: int, fatal: bool):
    if fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    return "x" * size
