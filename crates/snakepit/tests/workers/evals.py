"""Commands for the tests of evaluations."""

import os
import time

import snakepit


@snakepit.command
def double(n):
    """Is wrong, slow, broken or deadly if the question says so."""
    if n == "raise":
        raise ValueError("cannot double that")
    if n == "hang":
        time.sleep(1000)
    if n == "die":
        os._exit(3)
    return {"output": 2 * n, "tokens": {"input": 10, "output": 1}}


@snakepit.command
def named(n, bias: int = 0):
    """Answers according to the experiment."""
    experiment = snakepit.context().metadata["experiment"]
    return n + bias if experiment == "good" else n + 1


@snakepit.command
def grade(input, output, expected):
    if expected == "broken judge":
        raise RuntimeError("the judge is out")
    return {"score": 0.75 if output == expected else 0.25, "why": f"{input} gave {output}"}


@snakepit.evaluator
def is_whole(sample, output):
    """An evaluator beside the command that it judges."""
    return output == sample["expected"] and set(sample) == {"id", "input", "expected", "level"}


@snakepit.command
def deadly(n: int, divisor: int):
    if n % divisor == 0:
        os._exit(3)
    return n
