"""Measures how long multiprocessing.Pool takes until all of its workers run. Usage: pool_start.py fork|spawn

Prints {"total": seconds} for each number of workers on stdin.
"""

import json
import multiprocessing
import sys
import time


def announce(semaphore):
    semaphore.release()


def main():
    context = multiprocessing.get_context(sys.argv[1])
    print("{}", flush=True)
    for line in sys.stdin:
        workers = int(line)
        there = context.Semaphore(0)
        began = time.perf_counter_ns()
        pool = context.Pool(workers, announce, (there,))
        for _ in range(workers):
            there.acquire()
        total = (time.perf_counter_ns() - began) / 1e9
        pool.terminate()
        pool.join()
        print(json.dumps({"total": total, "times": []}), flush=True)


if __name__ == "__main__":
    main()
