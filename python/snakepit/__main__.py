"""Starts a worker: `python -m snakepit WORKER`, or this file itself with the same argument."""

import sys

if not __package__:
    # Run as a file: its directory would shadow modules of the standard library, and is not where the package is.
    import os

    _here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(_here):
        del sys.path[0]
    sys.path.insert(0, os.path.dirname(_here))

# Without its compiled files every start would take twice as long, and where the engine has put this package is its own
# place: PYTHONDONTWRITEBYTECODE, which containers like to set, is for the files of the worker.
_asked = sys.dont_write_bytecode
if not __package__:
    sys.dont_write_bytecode = False

from snakepit.worker import main

sys.dont_write_bytecode = _asked

if __name__ == "__main__":
    main(sys.argv[1:])
