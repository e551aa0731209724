"""Calls over gRPC whose RPC is over before they begin."""

import json
import os
import subprocess
import sys

import pytest
from harness import SDK

pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")

# In a separate process, because the life of a worker is that of its process.
WORKER = """
import json, sys
import snakepit
from snakepit.grpc.calls import Calls, Inline, Post
from snakepit.grpc.messages import CallReply, CallRequest, Value, serialized
from snakepit.lifecycle import Life

ran = []

@snakepit.command
def note(value):
    ran.append(value)
    return value

class Context:
    def __init__(self, ends):
        self.ends = ends

    def time_remaining(self):
        return 1e9

    def add_callback(self, callback):
        if self.ends == "at once":
            callback()
        return self.ends != "before"

post = Post(1 << 20)
calls = Calls(post, Inline("python"), Life(post), 1, False)
told = {}
for number, ends in enumerate(("never", "before", "at once", "never"), 1):
    args = calls.codec.encode([number])
    request = CallRequest(call=number, command="note", args=Value(data=args))
    reply = CallReply.FromString(serialized(calls.call(request, Context(ends))))
    told[number] = reply.error.kind or calls.codec.decode(reply.value.data)
print(json.dumps({"told": told, "ran": ran, "left": len(calls.calls), "active": calls.active}))
"""


def a_call_whose_rpc_is_over_when_it_begins_is_not_made():
    environment = {**os.environ, "PYTHONPATH": SDK}
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "told": {"1": 1, "2": "cancelled", "3": "cancelled", "4": 4}, "ran": [1, 4], "left": 0, "active": 0,
    }
