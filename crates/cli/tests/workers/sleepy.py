"""A worker that does not get ready."""

import time

print("not ready yet", flush=True)
time.sleep(1000)
