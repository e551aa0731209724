"""The worker of docs/adapters-contract.md, with the SDK."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time

import snakepit

WAY = os.environ.get("CONFORMANCE_WAY", "ready")
if WAY == "never-ready":
    signal.pause()
if WAY == "ends-before-ready":
    print("no, thank you", file=sys.stderr, flush=True)
    os._exit(3)


class ConformanceError(Exception):
    pass


def note(path, line):
    with open(path, "a") as file:
        file.write(line + "\n")


@snakepit.command
def echo(value):
    return value


@snakepit.command
def add(a: int, b: int):
    return a + b


def deep_inside(message):
    raise ConformanceError(message)


@snakepit.command
def fail(message: str):
    deep_inside(message)


@snakepit.command
def fail_because(message: str):
    try:
        raise ValueError("the root of it")
    except ValueError as cause:
        raise ConformanceError(message) from cause


@snakepit.command
def unsendable(message: str):
    return {"rows": [1, object()]}


@snakepit.command
def count(n: int):
    yield from range(n)


@snakepit.command
def count_and_fail(n: int, message: str):
    yield from range(n)
    deep_inside(message)


@snakepit.command
def count_for_ever(made: str, size: int):
    try:
        with open(made, "a") as file:
            while True:
                file.write(".")
                file.flush()
                yield "x" * size
    except BaseException:
        note(made + ".ended", "cancelled")
        raise


@snakepit.command
def wait(started: str, release: str):
    note(started, "started")
    try:
        while not os.path.exists(release):
            if snakepit.context().cancelled:
                raise snakepit.Cancelled
            time.sleep(0.01)
    except BaseException:
        note(started, "cancelled")
        raise
    return "released"


@snakepit.command
def stubborn(started: str):
    # Only the main thread may do this, and not every adapter runs commands there.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(started, "started")
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass


@snakepit.command
def exit(status: int):
    os._exit(status)


@snakepit.command
def die():
    os.kill(os.getpid(), signal.SIGKILL)


@snakepit.command(name="print")
def print_it(text: str):
    print(text, flush=True)
    print(text, file=sys.stderr, flush=True)
    return "printed"


@snakepit.command
def garbage():
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                os.write(fd, b"\xff" * 100)
        except OSError:
            pass
    time.sleep(600)


@snakepit.command
def leave_child(lock: str):
    file = open(lock, "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    sleeper = [sys.executable, "-c", "import signal; signal.signal(15, 1); signal.pause()"]
    subprocess.Popen(sleeper, start_new_session=True, pass_fds=[file.fileno()])


@snakepit.command
def deadline():
    return snakepit.context().remaining() * 1000


@snakepit.command
def session():
    return snakepit.context().session_id


@snakepit.command
def metadata():
    return snakepit.context().metadata


@snakepit.command
def use_tool(tool: str, a: int, b: int):
    return snakepit.context().host.call(tool, a=a, b=b)
