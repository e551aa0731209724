"""A worker that never becomes ready: only a signal ends it."""

import signal

signal.pause()
