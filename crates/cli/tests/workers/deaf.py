"""A worker that only KILL ends: it ignores SIGTERM, and its stop hook never returns."""

import signal
import time

import snakepit

signal.signal(signal.SIGTERM, signal.SIG_IGN)

told = None


@snakepit.command
def now(file: str = "") -> float:
    """Returns the time. The stop hook writes a line to the file."""
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
