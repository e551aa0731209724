"""A worker over lines of JSON (spec/stdio.md) that echoes, without the SDK."""

import json
import os
import sys

print(json.dumps({"status": "ready", "pid": os.getpid(), "commands": ["echo"]}), flush=True)
for line in sys.stdin:
    call = json.loads(line)
    if "id" in call:
        sys.stdout.write(json.dumps({"id": call["id"], "result": call["args"]["data"]}) + "\n")
        sys.stdout.flush()
