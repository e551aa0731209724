"""Commands for the tests of gRPC. Nothing in this file knows about gRPC."""

import os
import sys
import time

import snakepit


@snakepit.on_stop
def goodbye():
    path = os.environ.get("GOODBYE")
    if path:
        with open(path, "a") as file:
            file.write("goodbye\n")


@snakepit.health
def well():
    if os.path.exists(os.environ.get("ILL", "/nonexistent")):
        raise RuntimeError("not well")
    return "well"


@snakepit.command
def echo(value):
    return value


@snakepit.command
def kinds(value):
    return [type(each).__name__ for each in value]


@snakepit.command
async def later(value):
    import asyncio

    await asyncio.sleep(0)
    return value


async def innermost():
    import asyncio

    await asyncio.Event().wait()


@snakepit.command
async def waits_deep_down():
    await innermost()


@snakepit.command
def fail(text: str):
    try:
        raise KeyError(text)
    except KeyError as error:
        raise ValueError("it failed") from error


@snakepit.command
def count(n: int):
    yield from range(n)


@snakepit.command
def flood(path: str, size: int):
    """Streams without end, and records its progress."""
    made = 0
    while True:
        made += 1
        with open(path, "w") as file:
            file.write(str(made))
        yield b"x" * size


@snakepit.command
def watchful(path: str):
    """Runs until it sees that its caller is gone."""
    _note(path, "started")
    while not snakepit.context().cancelled:
        time.sleep(0.002)
    _note(path, "saw the flag")


@snakepit.command
def busy(path: str):
    """Checks nothing, so an exception must be raised in it."""
    _note(path, "started")
    try:
        while True:
            time.sleep(0.002)
    except snakepit.Cancelled:
        _note(path, "Cancelled")
        raise


@snakepit.command
def remaining():
    return snakepit.context().remaining()


@snakepit.command
def ask(tool: str, args: dict):
    return snakepit.context().host.call(tool, **args)


@snakepit.command
def read(tool: str, args: dict):
    return list(snakepit.context().host.stream(tool, **args))


@snakepit.command
def down(levels: int):
    return 0 if levels == 0 else 1 + snakepit.context().host.call("down", levels=levels - 1)


@snakepit.command
def steps(n: int):
    context = snakepit.context()
    for step in range(n):
        context.progress((step + 1) / n)
        context.log("info", "a step", number=step)
    return n


@snakepit.command
def who():
    context = snakepit.context()
    return [context.session_id, context.metadata, snakepit.trace_context()]


@snakepit.command
def die(status: int):
    print("about to die", file=sys.stderr, flush=True)
    os._exit(status)


@snakepit.command
def pid():
    return os.getpid()


def _note(path, text):
    with open(path, "a") as file:
        file.write(text + "\n")
