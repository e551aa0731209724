"""What `bench-supervision` calls: the same two commands, with and without a batch."""

import time

import snakepit


def work():
    """About 100 µs whatever the number of calls, as a small model's forward pass."""
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
