"""A worker that can be started only once: its only sample removes what the next worker needs."""

import os

import snakepit

open("needed.txt").close()


@snakepit.command
def answer(n: int):
    os.remove("needed.txt")
    os._exit(3)
