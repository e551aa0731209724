"""The commands that loops are measured with."""

import asyncio
import time

import snakepit


@snakepit.command
def add(a: int, b: int) -> int:
    return a + b


@snakepit.command
async def nap(seconds: float) -> float:
    """Answers when it woke up, by a clock that all processes share."""
    await asyncio.sleep(seconds)
    return time.clock_gettime(time.CLOCK_MONOTONIC)
