"""Commands for a worker that executes several calls at a time, in threads."""

import os
import signal
import threading
import time

import snakepit


def mark(path, key):
    with open(path, "a") as file:
        file.write(key + "\n")


@snakepit.command
def text(length: int):
    return "x" * length


@snakepit.command
def sleep(seconds: float):
    time.sleep(seconds)
    return threading.get_ident()


@snakepit.command
def ask(tool: str, args: dict):
    return snakepit.context().host.call(tool, **args)


@snakepit.command
def busy(path: str):
    mark(path, "started")
    try:
        while True:
            pass
    except BaseException as error:
        mark(path, type(error).__name__)
        raise


@snakepit.command
def stubborn(path: str):
    mark(path, "started")
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException as error:
            mark(path, type(error).__name__)


@snakepit.command
def mark_or_die(path: str, key: int, fatal: int):
    mark(path, str(key))
    time.sleep(0.002)
    if key == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    return key


@snakepit.command
def mark_and_sleep(path: str, key: str, seconds: float):
    mark(path, key)
    time.sleep(seconds)
    return key


@snakepit.command
def pid():
    return os.getpid()


@snakepit.command
def waits(seconds: float):
    time.sleep(seconds)


@snakepit.command
def computes(rounds: int):
    total = 0
    for n in range(rounds):
        total += n * n
    return total


@snakepit.command
def exits(status: int):
    os._exit(status)


@snakepit.command
def large_or_die(size: int, fatal: bool):
    if fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    return "x" * size
