"""A worker that only KILL ends: deaf to TERM, and with an exit handler that never returns."""

import atexit
import signal

import snakepit

signal.signal(signal.SIGTERM, signal.SIG_IGN)
atexit.register(signal.pause)


@snakepit.command
def echo(value):
    return value
