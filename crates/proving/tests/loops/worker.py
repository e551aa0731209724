"""A worker that does what a message asks for, and one that is evaluated."""

import os
import time

import snakepit


@snakepit.command
def answer(kind, number):
    if kind == "fail":
        raise ValueError("it failed")
    if kind == "hopeless":
        raise LookupError("it is hopeless")
    if kind == "panic":
        os._exit(7)
    if kind == "slow":
        time.sleep(0.225)
    return number


@snakepit.command
def double(n):
    """Wrong, broken or deadly where the question says so."""
    if n == "raise":
        raise ValueError("cannot double that")
    if n == "die":
        os._exit(3)
    return {"output": 2 * n, "tokens": {"input": 10, "output": 1}}


@snakepit.command
def worse(n):
    """As `double`, and wrong for every third question."""
    answer = double(n)
    if n % 3 == 0:
        answer["output"] += 1
    return answer


@snakepit.command
def grade(input, output, expected):
    return {"score": 0.75 if output == expected else 0.25, "why": f"{input} gave {output}"}
