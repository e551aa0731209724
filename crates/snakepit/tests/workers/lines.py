"""A worker without the SDK that speaks spec/stdio.md, correctly or not: one call at a time."""

import json
import os
import signal
import sys
import time


def say(**message):
    print(json.dumps(message), flush=True)


def serve(call):
    id, command, args = call["id"], call["command"], call["args"]
    if command == "echo":
        say(id=id, result=args)
    elif command == "request":
        say(id=id, result=call)
    elif command == "pid":
        say(id=id, result=os.getpid())
    elif command == "raise":
        try:
            raise ValueError(args["message"])
        except ValueError as error:
            import traceback

            say(id=id, error={"type": "ValueError", "message": str(error), "traceback": traceback.format_exc()})
    elif command == "text_error":
        say(id=id, error="just words")
    elif command == "count":
        for item in range(args["n"]):
            with open(args["path"], "w") if args.get("path") else open(os.devnull, "w") as file:
                file.write(str(item))
            say(id=id, item=[item, "x" * args.get("size", 0)])
        say(id=id, end=True)
    elif command == "count_then_fail":
        for item in range(args["n"]):
            say(id=id, item=item)
        say(id=id, error={"type": "StopIteration", "message": "no more"})
    elif command == "sleep":
        if "path" in args:
            open(args["path"], "w").close()
        time.sleep(args["seconds"])
        say(id=id, result="slept")
    elif command == "crash":
        print("about to crash", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 11)
    elif command == "panic":
        print("panic: runtime error: index out of range [5]", file=sys.stderr)
        for number in range(500):
            print(f"goroutine {number} [running]:", file=sys.stderr)
        sys.stderr.flush()
        os._exit(2)
    elif command == "leave":
        print("I am leaving", flush=True)
        os._exit(args.get("status", 0))
    elif command == "chat":
        print("a word before", flush=True)
        print("[1, 2]", flush=True)
        print('{"event": "a log", "level": "info"}', flush=True)
        print('{"id": 5, "note": "no answer at all"}', flush=True)
        sys.stdout.write("no end of line")
        sys.stdout.flush()
        print("", flush=True)
        say(id=id, progress={"fraction": 0.5, "text": "half"})
        say(id=id, result="said")
        print("a word after", flush=True)
    elif command == "raw":
        # Sends `bytes` as latin-1, with the call's id inserted.
        sys.stdout.buffer.write(args["bytes"].replace("ID", str(id)).encode("latin-1"))
        sys.stdout.buffer.flush()
        if args.get("then"):
            say(id=id, result=args["then"])
    elif command == "endless":
        while True:
            sys.stdout.write("{" + "x" * 100_000)
            sys.stdout.flush()
    elif command == "close_stdout":
        os.close(1)
        time.sleep(1000)
    elif command == "close_stdin":
        os.close(0)
        say(id=id, result="closed")
        time.sleep(1000)
    else:
        say(id=id, error={"kind": "unknown_command", "message": f"there is no command {command}"})


def main():
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    ready = {"status": "ready", "pid": os.getpid(), "commands": ["echo"], "language": "Python"}
    if mode == "protocol":
        ready["protocol"] = 2
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(**ready)
    for line in sys.stdin:
        if mode == "stubborn_goodbye" and not line:
            break
        call = json.loads(line)
        if "id" in call:
            serve(call)
        elif "cancel" in call and len(sys.argv) > 2:
            with open(sys.argv[2], "a") as file:
                file.write(f"cancel {call['cancel']}\n")
    while mode == "deaf":
        time.sleep(1000)
    if len(sys.argv) > 2:
        with open(sys.argv[2], "a") as file:
            file.write("goodbye\n")


main()
