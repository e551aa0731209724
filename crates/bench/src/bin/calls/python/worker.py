"""Our worker that is measured."""

import snakepit


@snakepit.command
def echo(data: bytes) -> bytes:
    return data


@snakepit.command(batch=32)
def echo_together(data: list) -> list:
    return data


@snakepit.command
def count(n: int):
    for i in range(n):
        yield i


@snakepit.command
def tiny(number: int) -> int:
    return number + 1
