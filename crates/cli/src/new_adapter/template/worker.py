"""A worker for the adapter in this crate: a JSON object per line, on descriptor 3. It may print anything."""

import json
import os
import signal
import sys
import traceback


class ConformanceError(Exception):
    pass


def echo(value):
    return value


def add(a, b):
    return a + b


def deep_inside(message):
    raise ConformanceError(message)


def fail(message):
    deep_inside(message)


COMMANDS = {"echo": echo, "add": add, "fail": fail}


def answer(call):
    command = COMMANDS.get(call["command"])
    if command is None:
        message = f"there is no command {call['command']}; there is {', '.join(COMMANDS)}"
        return {"error": {"kind": "unknown_command", "message": message}}
    try:
        return {"value": command(**call["args"])}
    except Exception as error:
        told = {"type": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
        return {"error": {"kind": "exception", **told}}


def serve():
    with os.fdopen(3, "r", encoding="utf-8", closefd=False) as calls, os.fdopen(3, "w", encoding="utf-8") as answers:
        print(json.dumps({"ready": list(COMMANDS)}), file=answers, flush=True)
        for line in calls:
            call = json.loads(line)
            print(json.dumps({"id": call["id"], **answer(call)}), file=answers, flush=True)


way = sys.argv[1] if len(sys.argv) > 1 else "ready"
if way == "never-ready":
    signal.pause()
if way == "ends-before-ready":
    print("no, thank you", file=sys.stderr)
    sys.exit(3)
serve()
