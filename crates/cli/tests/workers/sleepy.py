"""A worker that never becomes ready."""

import time

print("not ready yet", flush=True)
time.sleep(1000)
