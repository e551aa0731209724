"""The command that messages go through."""

import snakepit


@snakepit.command
def add(a: int, b: int) -> int:
    return a + b
