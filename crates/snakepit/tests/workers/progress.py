"""A command that takes as long as the test wants, and reports progress."""

import os
import time

import snakepit


@snakepit.command
def wait_for(path: str):
    while not os.path.exists(path):
        snakepit.context().progress(0.5, "waits")
        time.sleep(0.01)
    return "done"


@snakepit.command
def missing(key: str):
    return {}[key]


@snakepit.command
def wordless():
    raise KeyError
