"""A program that starts a daemon and returns at once.

Run it in custody, and the daemon is gone when the command returns:

    cargo run --release -p snakepit-cli -- exec -- python3 examples/daemon.py
"""

import os
import sys
import time


def daemon() -> int:
    """Starts a process that leaves its parent, its session, its group and its descriptors, and returns its pid."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
        os.write(write_end, str(os.getpid()).encode())
        os.closerange(0, 256)
        while True:
            time.sleep(3600)
    os.close(write_end)
    os.wait()
    return int(os.read(read_end, 32))


if __name__ == "__main__":
    pid = daemon()
    print(f"hello from custody: I am {os.getpid()}, and I leave a daemon behind: {pid}")
    print(f"look for it afterwards:  ps -p {pid}", flush=True)
    sys.exit(0)
