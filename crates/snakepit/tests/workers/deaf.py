"""A worker that ignores requests to end, or records them.

DEAF=1: SIGTERM is ignored, and the stop hook never returns. NOTES=path: both leave a line in the file; after its line,
the hook takes PAUSE seconds.
"""

import os
import signal
import subprocess
import sys
import time

import snakepit

NOTES = os.environ.get("NOTES")


def note(line):
    if NOTES:
        with open(NOTES, "a") as file:
            file.write(line + "\n")


def never():
    while True:
        time.sleep(0.05)


if os.environ.get("DEAF"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif NOTES:
    signal.signal(signal.SIGTERM, lambda *_: note("term"))


@snakepit.on_stop
def stop():
    note("goodbye")
    if os.environ.get("DEAF"):
        never()
    time.sleep(float(os.environ.get("PAUSE", "0")))
    note("done")


@snakepit.command
def pid():
    return os.getpid()


@snakepit.command
def hang(path: str):
    """Never returns, and uses the CPU all the time."""
    with open(path, "a") as file:
        file.write("begun\n")
    while True:
        pass


@snakepit.command
def child(path: str):
    """Starts a process in the worker's group that records a SIGTERM and lives on. Returns once it listens."""
    code = (
        "import signal, sys, time\n"
        "def heard(*_): open(sys.argv[1], 'a').write('child heard\\n')\n"
        "signal.signal(signal.SIGTERM, heard)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
    process.stdout.readline()
    return process.pid
