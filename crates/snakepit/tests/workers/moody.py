"""Does not start while a file says so, and dies of its device on request."""

import os
import sys

import snakepit

if os.path.exists(os.environ.get("MOODY_FILE", "/nonexistent")):
    raise RuntimeError("in a bad mood")


@snakepit.command
def echo(value):
    return value


@snakepit.command
def place():
    return [os.environ["SNAKEPIT_SLOT"], os.environ.get("SNAKEPIT_DEVICE")]


@snakepit.command
def pid():
    return os.getpid()


@snakepit.command
def die(of: str):
    print(of, file=sys.stderr, flush=True)
    os.abort()
