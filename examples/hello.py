"""A worker: functions that a host calls. Each worker is a separate process.

    cargo run --release -p snakepit-cli -- call -w examples/hello.py greet name=World
    cargo run --release -p snakepit-cli -- call -w examples/hello.py --stream count to:=3
    cargo run --release -p snakepit-cli -- call -w examples/hello.py nap seconds:=0.1
"""

import asyncio

import snakepit


@snakepit.command
def greet(name: str) -> str:
    return f"Hello, {name}!"


@snakepit.command
def add(a: int, b: int) -> int:
    return a + b


@snakepit.command
def count(to: int):
    """A generator streams; a slow reader slows it down."""
    for number in range(1, to + 1):
        snakepit.context().progress(number / to, f"{number} of {to}")
        yield number


@snakepit.command
async def nap(seconds: float) -> str:
    """Commands may be coroutines."""
    await asyncio.sleep(seconds)
    return f"slept {seconds} s"
