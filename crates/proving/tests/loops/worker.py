"""The commands that handle messages, and those that are evaluated."""

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
def take_a_moment(number):
    time.sleep(0.002)
    return number


@snakepit.command
def double(n):
    """Fails or dies if the input says so."""
    if n == "raise":
        raise ValueError("cannot double that")
    if n == "die":
        os._exit(3)
    return {"output": 2 * n, "tokens": {"input": 10, "output": 1}}


@snakepit.command
def worse(n):
    """Like `double`, but wrong for every third input."""
    answer = double(n)
    if n % 3 == 0:
        answer["output"] += 1
    return answer


@snakepit.command
def grade(input, output, expected):
    return {"score": 0.75 if output == expected else 0.25, "why": f"{input} gave {output}"}
