"""Starts a worker: `python -m snakepit WORKER`, or this file itself with the same argument."""

import sys

# First of all, because an older version could not even parse the rest.
if sys.version_info < (3, 9):
    sys.exit(
        "snakepit: a worker needs Python 3.9 or newer, and %s is %d.%d: name another one with `python`"
        % ((sys.executable,) + tuple(sys.version_info[:2]))
    )

if not __package__:
    # Run as a file: its directory would shadow modules of the standard library, and it is not the directory of the
    # package.
    import os

    _here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(_here):
        del sys.path[0]
    sys.path.insert(0, os.path.dirname(_here))
    # Without its compiled files, every start would take twice as long. The engine has put this package into a directory
    # of its own, so PYTHONDONTWRITEBYTECODE, which containers often set, only applies to the files of the worker.
    if sys.dont_write_bytecode and not os.path.exists(f"{_here}/__pycache__/{sys.implementation.cache_tag}.all"):
        from _frozen_importlib_external import SourceFileLoader

        sys.dont_write_bytecode = False
        for _folder, _, _files in os.walk(_here):
            for _file in _files:
                if _file.endswith(".py"):
                    SourceFileLoader("snakepit", f"{_folder}/{_file}").get_code("snakepit")
        sys.dont_write_bytecode = True
        try:
            open(f"{_here}/__pycache__/{sys.implementation.cache_tag}.all", "x").close()
        except OSError:  # the directory is read-only, or another worker was faster
            pass

from snakepit.worker import main

if __name__ == "__main__":
    main(sys.argv[1:])
