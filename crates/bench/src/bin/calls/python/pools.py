"""Drives and times multiprocessing.Pool, ProcessPoolExecutor or Ray. Their host is this Python process.

Usage: pools.py executor|pool|ray WORKERS. Prints its workers' pids, then one line of JSON for each order on stdin:

    one BYTES CALLS              {"total": seconds, "times": [seconds, …]}
    many BYTES CALLS IN_FLIGHT   the same, with each call's time from its submission to its result
    map CALLS CHUNK              {"total": seconds}
"""

import collections
import concurrent.futures
import json
import multiprocessing
import os
import sys
import time


def echo(data):
    return data


def tiny(number):
    return number + 1


def own_pid(_):
    time.sleep(0.05)  # so that every worker gets one
    return os.getpid()


class Executor:
    def __init__(self, workers):
        self.pool = concurrent.futures.ProcessPoolExecutor(workers)
        self.pids = sorted(set(self.pool.map(own_pid, range(workers))))

    def submit(self, data):
        return self.pool.submit(echo, data).result

    def map(self, numbers, chunk):
        return sum(self.pool.map(tiny, numbers, chunksize=chunk))

    def close(self):
        for child in multiprocessing.active_children():
            child.kill()


class Pool:
    def __init__(self, workers):
        self.pool = multiprocessing.Pool(workers)
        self.pids = sorted(set(self.pool.map(own_pid, range(workers), chunksize=1)))

    def submit(self, data):
        return self.pool.apply_async(echo, (data,)).get

    def map(self, numbers, chunk):
        return sum(self.pool.map(tiny, numbers, chunksize=chunk))

    def close(self):
        for child in multiprocessing.active_children():
            child.kill()


class Ray:
    def __init__(self, workers):
        import ray

        ray.init(num_cpus=workers, log_to_driver=False, include_dashboard=False)

        class Echo:
            def echo(self, data):
                return data

            def pid(self):
                return os.getpid()

        remote = ray.remote(Echo)
        self.get, self.close = ray.get, ray.shutdown
        self.actors = [remote.remote() for _ in range(workers)]
        self.pids = [ray.get(actor.pid.remote()) for actor in self.actors]
        self.turn = 0

    def submit(self, data):
        self.turn = (self.turn + 1) % len(self.actors)
        answer = self.actors[self.turn].echo.remote(data)
        return lambda: self.get(answer)


def one(pool, size, calls):
    data = b"Z" * size
    times = []
    for _ in range(calls):
        began = time.perf_counter_ns()
        pool.submit(data)()
        times.append((time.perf_counter_ns() - began) / 1e9)
    return times


def many(pool, size, calls, in_flight):
    data = b"Z" * size
    waiting = collections.deque()
    times = []

    def take():
        began, result = waiting.popleft()
        result()
        times.append((time.perf_counter_ns() - began) / 1e9)

    for _ in range(calls):
        if len(waiting) == in_flight:
            take()
        waiting.append((time.perf_counter_ns(), pool.submit(data)))
    while waiting:
        take()
    return times


def bulk(pool, calls, chunk):
    pool.map(range(calls), chunk)
    return []


def main():
    pool = {"executor": Executor, "pool": Pool, "ray": Ray}[sys.argv[1]](int(sys.argv[2]))
    orders = {"one": one, "many": many, "map": bulk}
    print(json.dumps({"pids": pool.pids}), flush=True)
    for line in sys.stdin:
        order, *numbers = line.split()
        began = time.perf_counter_ns()
        times = orders[order](pool, *map(int, numbers))
        total = (time.perf_counter_ns() - began) / 1e9
        print(json.dumps({"total": total, "times": times}), flush=True)
    pool.close()


if __name__ == "__main__":
    main()
    os._exit(0)
