"""Starts a worker: `python -m snakepit WORKER`, or this file itself with the same argument."""

import sys

if not __package__:
    # Run as a file: its directory would shadow modules of the standard library, and is not where the package is.
    import os

    _here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(_here):
        del sys.path[0]
    sys.path.insert(0, os.path.dirname(_here))

from snakepit.worker import main

if __name__ == "__main__":
    main(sys.argv[1:])
