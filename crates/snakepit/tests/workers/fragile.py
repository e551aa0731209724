"""Crashes as a file says: at its import, right after it became ready, or in its first call. Counts its starts in
another."""

import os
import threading

import snakepit


def mood():
    try:
        with open(os.environ["FRAGILE_FILE"]) as file:
            return file.read()
    except OSError:
        return "well"


with open(os.environ["FRAGILE_STARTS"], "a") as starts:
    starts.write(f"{os.getpid()}\n")

if mood() == "import":
    raise RuntimeError("crashes at import")
if mood() == "ready":
    threading.Timer(0.02, os._exit, [3]).start()


@snakepit.command
def echo(value):
    if mood() == "call":
        os._exit(4)
    return value


@snakepit.command
def pid():
    return os.getpid()
