"""Commands that the tests of `snakepit eval` call."""

import os
import socket
import time

import snakepit


@snakepit.command
def answer(n: int, bias: int = 0):
    """Stops at the sample that EVAL_STOP_AT names, and reports it at EVAL_GATE."""
    if os.environ.get("EVAL_STOP_AT") == str(n):
        with socket.socket(socket.AF_UNIX) as gate:
            gate.connect(os.environ["EVAL_GATE"])
            gate.sendall(b"here")
            time.sleep(1000)
    if n == 3 and "EVAL_IS_WELL" not in os.environ:
        raise ValueError("<three> is too much")
    if n == 6 and "EVAL_IS_WELL" not in os.environ:
        time.sleep(1000)
    if snakepit.context().metadata.get("experiment") == "careless" and n % 2:
        return n
    return {"output": 2 * n + bias, "tokens": {"input": n, "output": 1}}


@snakepit.command
def constant(n: int):
    return 0


@snakepit.command
def grade(input, output, expected):
    return 1.0 if output == expected else 0.5


@snakepit.command
def deadly(n: int, every: int = 1):
    """Ends its worker at every `every`th sample."""
    if n % every == 0:
        os._exit(3)
    return 2 * n


@snakepit.command
def deadly_beside(n: int):
    """Ends its worker at two of the samples, while the worker is also busy with others."""
    if n in (5, 10):
        time.sleep(0.05)
        os._exit(3)
    time.sleep(0.1)
    return 2 * n


@snakepit.command
def echo(text):
    return text


@snakepit.command
def above_a_power_of_ten(power: int):
    """Returns an integer of any size, or NaN."""
    return 10**power + 1 if power else float("nan")
