"""Commands that the tests of calls use."""

import importlib.util
import os
import sys
import time

import snakepit


@snakepit.command
def add(a: int, b: int) -> int:
    return a + b


@snakepit.command
def echo(value):
    return value


@snakepit.command
def codec():
    """Returns the codec in use, and whether msgspec is available."""
    return [snakepit.context()._runner.codec.name, importlib.util.find_spec("msgspec") is not None]


@snakepit.command
def count(n: int):
    for i in range(n):
        yield i


@snakepit.command
def fail(text: str):
    try:
        raise KeyError(text)
    except KeyError as error:
        raise ValueError("it failed") from error


@snakepit.command
def sleep(seconds: float):
    time.sleep(seconds)
    return seconds


@snakepit.command
def pid():
    return os.getpid()


@snakepit.command
def die(status: int):
    print("about to die", file=sys.stderr, flush=True)
    os._exit(status)


@snakepit.command
def ask(tool: str, args: dict):
    return snakepit.context().host.call(tool, **args)


@snakepit.command
async def async_add(a: int, b: int) -> int:
    return a + b


@snakepit.command
def steps(n: int):
    for step in range(n):
        snakepit.context().progress((step + 1) / n, f"step {step + 1}")
    return n


@snakepit.health
def well():
    return {"pid": os.getpid()}
