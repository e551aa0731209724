"""An echo behind mosec, until stdin ends. Must lead a process group. mosec reads its options from argv.

The number of workers is in BENCH_WORKERS. As a worker of a pool it gets its port from the pool, and ends with it.
"""

import os
import signal
import sys
import threading

from mosec import Server, Worker


class Echo(Worker):
    # Bytes, as they are; the default is JSON.
    resp_mime_type = "application/octet-stream"

    def deserialize(self, data):
        return data

    def serialize(self, data):
        return data

    def forward(self, data):
        return data


def end_with_stdin():
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    if "SNAKEPIT_PORT" not in os.environ:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    server = Server()
    server.append_worker(Echo, num=int(os.environ["BENCH_WORKERS"]))
    server.run()
