"""A worker whose only command does next to nothing."""

import snakepit


@snakepit.command
def tiny(number: int) -> int:
    return number + 1
