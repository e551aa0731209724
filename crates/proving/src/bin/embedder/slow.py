"""A worker that is never ready: it ends only by a signal."""

import signal

signal.pause()
