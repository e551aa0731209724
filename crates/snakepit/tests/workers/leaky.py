"""Commands that leak memory, and commands that do not."""

import os
import subprocess
import sys

import snakepit

kept = []
children = []


@snakepit.command
def leak(mib: int):
    kept.append(b"x" * (mib << 20))
    return len(kept)


@snakepit.command
def tidy(value=None):
    return value


@snakepit.command
def child_leaks(mib: int):
    """The memory belongs to a child."""
    code = f"x = b'x' * ({mib} << 20); print(flush=True); import time; time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child.stdout.readline()
    children.append(child)
    return child.pid


@snakepit.command
def pid():
    return os.getpid()
