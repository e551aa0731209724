"""The command that handles messages."""

import snakepit


@snakepit.command
def add(a: int, b: int) -> int:
    return a + b
