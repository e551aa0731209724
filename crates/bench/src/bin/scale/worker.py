"""The worker that `bench-scale` calls. The program carries this file, so that a copied binary needs nothing but a python3."""

import time

import snakepit


@snakepit.command
def echo(data):
    return data


@snakepit.command
def work(data):
    """Computes for 1 ms."""
    until = time.perf_counter() + 0.001
    while time.perf_counter() < until:
        pass
    return data


@snakepit.command
def size(data) -> int:
    return len(data)


@snakepit.command
def tiny(number: int) -> int:
    return number + 1
