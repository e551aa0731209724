"""What one worker achieves per second, seen by a host that does nearly nothing.

    python python/bench/measure.py [echo] [pipeline] [stream] [bodies] [start]

The floor of `echo` is a raw blocking loop that returns what it reads.
"""

import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from harness import Worker, encode  # noqa: E402

SOURCE = """
import snakepit

@snakepit.command
def echo(x):
    return x

@snakepit.command
def count(n: int):
    for i in range(n):
        yield i
"""
HEADER = struct.Struct("<IBBHQ")


def ping_pong(sock, request, size, rounds):
    times = []
    clock = time.perf_counter_ns
    for _ in range(rounds):
        began = clock()
        sock.sendall(request)
        left = size
        while left:
            left -= len(sock.recv(left))
        times.append(clock() - began)
    return statistics.median(times) / 1000


def raw_echo(payload, rounds):
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        buffer = memoryview(bytearray(65536))
        while True:
            n = theirs.recv_into(buffer)
            if not n:
                os._exit(0)
            theirs.sendall(buffer[:n])
    theirs.close()
    request = HEADER.pack(len(payload), 1, 3, 0, 1) + payload
    p50 = ping_pong(ours, request, len(request), rounds)
    ours.close()
    os.waitpid(pid, 0)
    return p50


def call_bytes(number, value):
    payload = encode.encode(["echo", {"x": value}, None])
    return HEADER.pack(len(payload), 1, 3, 0, number) + payload


def echo(worker, rounds=20000):
    value = b"x" * 64
    request = call_bytes(1, value)
    size = 16 + len(encode.encode(value))
    ping_pong(worker.socket, request, size, 2000)
    results = []
    for _ in range(3):
        floor = raw_echo(b"x" * 64, rounds)
        ours = ping_pong(worker.socket, request, size, rounds)
        results.append(f"{ours:.1f}/{floor:.1f} = {ours / floor:.2f}")
    print("64 B echo, p50 in us, worker/raw loop:", ", ".join(results))


def pipeline(worker, calls=400000, window=64):
    value = b"x" * 64
    batch = b"".join(call_bytes(n, value) for n in range(window))
    size = window * (16 + len(encode.encode(value)))
    sock = worker.socket
    began = time.perf_counter()
    for _ in range(calls // window):
        sock.sendall(batch)
        left = size
        while left:
            left -= len(sock.recv(left))
    took = time.perf_counter() - began
    print(f"pipelined 64 B echo, window {window}: {calls / took:,.0f} calls/s")


def stream(worker, items=1000000):
    payload = encode.encode(["count", {"n": items}, None, {"stream": 1 << 30}])
    sock = worker.socket
    began = time.perf_counter()
    sock.sendall(HEADER.pack(len(payload), 1, 3, 0, 1) + payload)
    sizes = ((1, 128), (2, 128), (3, 65536 - 256), (5, items - 65536))
    left = sum((16 + n) * count for n, count in sizes) + 16
    while left:
        left -= len(sock.recv(1 << 20))
    took = time.perf_counter() - began
    print(f"stream of integers: {items / took:,.0f} items/s")


def bodies(worker, rounds=300):
    body = b"x" * (1 << 20)
    # A body two levels down, in the form in which a host sends it.
    head = b"\x93\xa4echo\x91\xd7\x05" + struct.pack("<II", 0, len(body)) + b"\xc0"
    payload = struct.pack("<I", len(head)) + head + body
    request = HEADER.pack(len(payload), 1, 3, 1, 1) + payload
    size = 16 + 4 + 10 + len(body)
    sock = worker.socket
    buffer = memoryview(bytearray(size))
    times = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        sock.sendall(request)
        got = 0
        while got < size:
            got += sock.recv_into(buffer[got:])
        times.append(time.perf_counter_ns() - began)
    print(f"1 MiB echo: {statistics.median(times) / 1000:.0f} us")


def start(rounds=30):
    """With compiled files, as after the first start. A Python that does nothing is the floor."""
    times, plain = [], []
    with tempfile.TemporaryDirectory() as cache:
        environment = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": cache}
        for _ in range(rounds):
            worker = Worker(SOURCE, env=environment)
            worker.ready()
            times.append(time.monotonic() - worker.began)
            worker.close()
            began = time.monotonic()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            plain.append(time.monotonic() - began)
    floor = statistics.median(plain) * 1000
    print(f"start to READY: {statistics.median(times) * 1000:.1f} ms (python -c pass, to its end: {floor:.1f} ms)")


def main():
    wanted = sys.argv[1:] or ["start", "echo", "pipeline", "stream", "bodies"]
    if "start" in wanted:
        start()
    for codec in ("msgspec", "python"):
        with Worker(SOURCE, env={"SNAKEPIT_CODEC": codec}) as worker:
            worker.ready()
            print(f"codec {codec}:")
            for step in (echo, pipeline, stream, bodies):
                if step.__name__ in wanted:
                    step(worker)


if __name__ == "__main__":
    main()
