"""The worker that `bench-supervision` calls."""

import os
import time

import snakepit


def work():
    """Takes about 100 µs for any number of calls, like a small model's forward pass."""
    until = time.perf_counter() + 0.0001
    while time.perf_counter() < until:
        pass


@snakepit.command
def echo(data):
    return data


@snakepit.command(batch=32, window="2ms")
def echo_batch(data):
    return data


@snakepit.command
def model(data):
    work()
    return data


@snakepit.command(batch=32, window="2ms")
def model_batch(data):
    work()
    return data


@snakepit.command
def number(value: int) -> int:
    return value


@snakepit.command
def pid() -> int:
    return os.getpid()


@snakepit.command
def waits():
    time.sleep(0.01)


@snakepit.command
def computes():
    total = 0
    for n in range(10_000):
        total += n * n
    return total
