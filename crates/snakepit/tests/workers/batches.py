"""Commands that take many calls at a time, as lists. With ASYNC=1 in the environment, some of them are coroutines."""

import asyncio
import os
import signal
import time

import snakepit


def mark(path, text):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def words(values):
    return ",".join(map(str, values))


def hold_until(gate):
    """Waits until the test creates this file."""
    while not os.path.exists(gate):
        time.sleep(0.001)


@snakepit.command
def pid():
    return os.getpid()


@snakepit.command(batch=8, window="30s")
def hold(x, path, gate):
    """Records its inputs, and waits for the test."""
    mark(path[0], words(x))
    try:
        hold_until(gate[0])
    except BaseException as error:
        mark(path[0], type(error).__name__)
        raise
    return x


@snakepit.command(name="hold_briefly", batch=8, window="100ms")
def hold_with_a_short_window(x, path, gate):
    return hold(x, path, gate)


if os.environ.get("ASYNC"):

    @snakepit.command(name="hold_async", batch=8, window="30s")
    async def hold_async(x, path, gate):
        mark(path[0], words(x))
        while not os.path.exists(gate[0]):
            await asyncio.sleep(0.001)
        return x


@snakepit.command(batch=8, window="2ms")
def size(x):
    """Returns, for each call, how many calls came together."""
    return [len(x)] * len(x)


@snakepit.command(batch=4, window=0.002)
def add(a, b=1, *, c=0):
    return [x + y + z for x, y, z in zip(a, b, c)]


@snakepit.command(batch=8, window="2ms")
def no_negatives(x):
    return [ValueError(f"{n} is negative") if n < 0 else n for n in x]


@snakepit.command(batch=8, window="2ms")
def wrong(x, what):
    return {"text": "text", "short": x[1:], "none": None}[what[0]]


@snakepit.command(batch=8, window="2ms")
def unsendable(x):
    return [object() if n == 3 else n for n in x]


@snakepit.command(batch=8, window="2ms")
def poison(x, path, gate):
    """Raises for -1 and dies of -2, after it has recorded its inputs."""
    mark(path[0], words(x))
    hold_until(gate[0])
    if -1 in x:
        raise ValueError("poison")
    if -2 in x:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


@snakepit.command(batch=16, window="1ms")
def mortal(x):
    """Dies of each multiple of 97, the first time that this worker sees it."""
    if any(n % 97 == 96 for n in x):
        os.kill(os.getpid(), signal.SIGKILL)
    return [n * 2 for n in x]


@snakepit.command(batch=4, window="2ms")
def about(x):
    context = snakepit.context()
    session = context.session
    return [[len(x), session.id if session else None, dict(context.metadata)]] * len(x)


@snakepit.command(batch=8, window="2ms")
def text(length):
    return ["x" * n for n in length]


@snakepit.command(batch=8, window="2ms")
def dies_for_a_while(x, path, gate, times):
    """Like `poison`, but dies only the first times that it gets -2."""
    mark(path[0], words(x))
    hold_until(gate[0])
    if -2 in x:
        with open(path[0]) as file:
            runs = sum("-2" in line.strip().split(",") for line in file)
        if runs <= times[0]:
            os._exit(5)
    return x
