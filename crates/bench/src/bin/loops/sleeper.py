"""The command that a drain waits for. A worker with an async command runs an event loop, so `add` is in another file."""

import asyncio
import time

import snakepit


@snakepit.command
async def nap(seconds: float) -> float:
    """Returns when it woke up, by a clock that all processes share."""
    await asyncio.sleep(seconds)
    return time.clock_gettime(time.CLOCK_MONOTONIC)
