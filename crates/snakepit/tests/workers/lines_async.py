"""A worker that speaks lines of JSON on an event loop, without the SDK: several calls at a time, unless one blocks
the loop."""

import asyncio
import json
import os
import sys
import time


def say(**message):
    print(json.dumps(message), flush=True)


async def serve(call):
    args = call["args"]
    if call["command"] == "nap":
        await asyncio.sleep(args["seconds"])
    elif call["command"] == "block":
        with open(args["path"], "a") as file:
            file.write("started\n")
        time.sleep(600)
    say(id=call["id"], result=os.getpid())


async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    say(status="ready", pid=os.getpid())
    tasks = set()
    while True:
        line = await reader.readline()
        if not line:
            return
        call = json.loads(line)
        if "id" in call:
            task = asyncio.ensure_future(serve(call))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


asyncio.run(main())
