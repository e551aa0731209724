"""A worker over lines of JSON (spec/stdio.md) that echoes, without the SDK.

With the argument "msgspec" it reads and writes JSON with msgspec, otherwise with Python's own json.
"""

import json
import os
import sys

loads, dumps = json.loads, lambda value: json.dumps(value).encode()
if sys.argv[1:] == ["msgspec"]:
    import msgspec

    loads, dumps = msgspec.json.decode, msgspec.json.encode

print(json.dumps({"status": "ready", "pid": os.getpid(), "commands": ["echo"]}), flush=True)
# The buffer of sys.stdin would read a long line in pieces of 8 KiB.
for line in open(0, "rb", buffering=1 << 16, closefd=False):
    call = loads(line)
    if "id" in call:
        sys.stdout.buffer.write(dumps({"id": call["id"], "result": call["args"]["data"]}) + b"\n")
        sys.stdout.buffer.flush()
