"""A worker. Every function below @snakepit.command can be called."""

import snakepit


@snakepit.command
def add(a: int, b: int) -> int:
    return a + b


@snakepit.command
def count(to: int):
    """A generator: `snakepit call --stream count to:=3`."""
    for number in range(1, to + 1):
        yield number
