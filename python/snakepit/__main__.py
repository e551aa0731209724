"""Starts a worker: `python -m snakepit WORKER`, or this file itself with the same argument."""

import sys

if not __package__:
    # Run as a file: its directory would shadow the standard library's modules, and is not where the package is.
    _here = __file__.rpartition("/")[0] or "."
    if sys.path and sys.path[0] == _here:
        del sys.path[0]
    import os

    sys.path.insert(0, os.path.dirname(os.path.abspath(_here)))

from snakepit.worker import main

if __name__ == "__main__":
    main(sys.argv[1:])
