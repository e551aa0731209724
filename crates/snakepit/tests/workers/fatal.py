"""Commands that kill their worker for so many runs, counted in a file, and not after that."""

import os
import signal

import snakepit


def run(path):
    """Returns the number of this run; the first is 1."""
    with open(path, "ab") as file:
        file.write(b"x")
        return file.tell()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


@snakepit.command
def echo(value):
    return value


@snakepit.command
def dies(path: str, times: int):
    """Answers with the number of its runs."""
    number = run(path)
    if number <= times:
        die()
    return number


@snakepit.command
def dies_of(path: str, value: int, fatal: int, times: int):
    """Dies only of one value."""
    if value == fatal and run(path) <= times:
        die()
    return value


@snakepit.command
def raises(path: str):
    run(path)
    raise ValueError("no death")


@snakepit.command
def stream(path: str, times: int, items: int):
    """Dies before the first item."""
    if run(path) <= times:
        die()
    yield from range(items)


@snakepit.command
def breaks_off(path: str, items: int):
    """Dies after some items."""
    run(path)
    yield from range(items)
    die()
