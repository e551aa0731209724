"""A worker that only KILL ends: it ignores TERM, and its exit handler never returns."""

import atexit
import signal

import snakepit

signal.signal(signal.SIGTERM, signal.SIG_IGN)
atexit.register(signal.pause)


@snakepit.command
def echo(value):
    return value
