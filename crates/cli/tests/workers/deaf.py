"""A worker that only KILL ends: deaf to SIGTERM, and with a hook for the end that never returns."""

import signal
import time

import snakepit

signal.signal(signal.SIGTERM, signal.SIG_IGN)

told = None


@snakepit.command
def now(file: str = "") -> float:
    """What time it is. The file gets a line when the worker is told to end."""
    global told
    told = file
    return time.time()


@snakepit.on_stop
def stop():
    if told:
        with open(told, "w") as file:
            file.write("told\n")
    while True:
        time.sleep(1)
