"""The worker of docs/adapters-contract.md over lines of JSON (spec/stdio.md), without the SDK."""

import json
import os
import sys
import threading

import plain

writing = threading.Lock()
running = {}


def say(message):
    line = json.dumps(message) if isinstance(message, dict) else message
    with writing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Call:
    def __init__(self, message):
        self.id, self.command = message["id"], message["command"]
        self.args, self.streams = message["args"], message.get("stream", False)
        self.remaining_ms, self.session = message.get("timeout_ms"), message.get("session")
        self.metadata = message.get("metadata", {})
        self.flag = threading.Event()

    def cancelled(self):
        return self.flag.is_set()


def print_it(call, text):
    say(text)
    print(text, file=sys.stderr, flush=True)
    return "printed"


def garbage(call):
    say(f'{{"id":{call.id},"result":nonsense}}')
    call.flag.wait()


COMMANDS = {**plain.COMMANDS, "print": print_it, "garbage": garbage}


def serve(call):
    try:
        function = COMMANDS.get(call.command)
        if function is None:
            return say({"id": call.id, "error": plain.unknown(call.command)})
        answer = function(call, **call.args)
        if not plain.is_stream(function):
            return say({"id": call.id, "result": answer})
        for item in answer:
            say({"id": call.id, "item": item})
        say({"id": call.id, "end": True})
    except BaseException as error:
        say({"id": call.id, "error": plain.told(error)})
    finally:
        running.pop(call.id, None)


def main():
    plain.begin()
    say({"status": "ready", "pid": os.getpid(), "commands": list(COMMANDS), "language": "Python"})
    threads = []
    for line in sys.stdin:
        message = json.loads(line)
        if "cancel" in message:
            call = running.get(message["cancel"])
            if call:
                call.flag.set()
            continue
        call = running[message["id"]] = Call(message)
        threads.append(threading.Thread(target=serve, args=[call], daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()


main()
