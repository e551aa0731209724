"""A worker that cannot be imported."""

import snakepit


@snakepit.command
def never():
    return 1 / 0


never()
