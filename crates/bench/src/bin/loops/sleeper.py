"""The command that a drain waits for. A worker with an async command has an event loop, so this is not the file of `add`."""

import asyncio
import time

import snakepit


@snakepit.command
async def nap(seconds: float) -> float:
    """Answers when it woke up, by a clock that all processes share."""
    await asyncio.sleep(seconds)
    return time.clock_gettime(time.CLOCK_MONOTONIC)
