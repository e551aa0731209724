"""Times multiprocessing.Pool.map over tiny tasks. Usage: peer.py WORKERS CALLS. Prints the calls per second."""

import multiprocessing
import sys
import time


def tiny(number):
    return number + 1


if __name__ == "__main__":
    workers, calls = map(int, sys.argv[1:])
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        pool.map(tiny, range(workers * 100), chunksize=100)
        began = time.perf_counter()
        assert pool.map(tiny, range(calls), chunksize=100)[-1] == calls
        print(calls / (time.perf_counter() - began))
