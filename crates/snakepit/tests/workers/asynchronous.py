"""Commands that are coroutines, and commands that are not."""

import asyncio
import itertools
import os
import signal
import time

import snakepit


def mark(path, key):
    with open(path, "a") as file:
        file.write(key + "\n")


@snakepit.command
async def nap(seconds: float):
    await asyncio.sleep(seconds)
    return seconds


@snakepit.command
def sleep(seconds: float):
    time.sleep(seconds)
    return seconds


@snakepit.command
async def count(n: int):
    for number in range(n):
        yield number


@snakepit.command
async def blobs(n: int, size: int, path: str):
    """Records how many it has made before it sends each."""
    for number in range(n):
        with open(path, "w") as file:
            file.write(str(number + 1))
        yield number.to_bytes(4, "little") * (size // 4)


@snakepit.command
async def read_between(tool: str, between: str, items: int):
    """Calls another tool after each item."""
    host = snakepit.context().host
    taken = 0
    async for _ in host.stream(tool):
        await host.call(between)
        taken += 1
        if taken == items:
            break
    return taken


@snakepit.command
async def counted(path: str):
    number = 0
    try:
        while True:
            with open(path, "w") as file:
                file.write(str(number))
            yield number
            number += 1
            await asyncio.sleep(0)
    except BaseException as error:
        mark(path + ".end", type(error).__name__)
        raise


@snakepit.command
async def patient(path: str):
    mark(path, "started")
    try:
        await asyncio.sleep(600)
    except BaseException as error:
        mark(path, type(error).__name__)
        raise


@snakepit.command
async def ask(tool: str, args: dict):
    return await snakepit.context().host.call(tool, **args)


@snakepit.command
async def ask_together(tool: str, times: int):
    host = snakepit.context().host
    return await asyncio.gather(*(host.call(tool, n=n) for n in range(times)))


@snakepit.command
async def read(tool: str, args: dict):
    return [item async for item in snakepit.context().host.stream(tool, **args)]


@snakepit.command
async def die():
    os.kill(os.getpid(), signal.SIGKILL)


@snakepit.command
async def block(path: str):
    """Keeps the event loop from doing anything else."""
    mark(path, "started")
    while True:
        try:
            time.sleep(600)
        except BaseException as error:
            mark(path, type(error).__name__)


@snakepit.command
async def hold_up(path: str, seconds: float):
    """Keeps the event loop from doing anything else, for a while."""
    mark(path, "held up")
    time.sleep(seconds)


async def innermost(path):
    mark(path, "waits")
    await asyncio.Event().wait()


async def numbers(path):
    yield 1
    await innermost(path)


@snakepit.command
async def waits_deep_down(path: str):
    async for _ in numbers(path):
        pass


@snakepit.command(batch=8, window="50ms")
async def waits_together(paths):
    await innermost(paths[0])


@snakepit.command
def runs_a_loop(path: str):
    asyncio.run(innermost(path))


@snakepit.command
async def holds_the_interpreter():
    """Runs a loop in C, which ignores signals."""
    sum(itertools.repeat(1, 1 << 40))
