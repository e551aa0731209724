"""A worker that dies by itself. LIVES, or the file LIVES_IN, is "1.1-1.5", in seconds, or "never", which does not
start."""

import os
import random
import threading

import snakepit


def lives():
    if "LIVES" in os.environ:
        return os.environ["LIVES"]
    with open(os.environ["LIVES_IN"]) as file:
        return file.read()


if lives() == "never":
    raise RuntimeError("it was told not to start")
shortest, longest = map(float, lives().split("-"))


@snakepit.on_start
def live():
    timer = threading.Timer(random.uniform(shortest, longest), os._exit, (7,))
    timer.daemon = True
    timer.start()


@snakepit.command
def echo(value):
    return value
