"""Commands that check their deadline."""

import time

import snakepit


@snakepit.command
def remaining():
    return snakepit.context().remaining()


@snakepit.command
def stall(good: int):
    yield from range(good)
    time.sleep(600)
