"""A web server on an event loop, with only the standard library. A call that blocks the loop blocks all calls."""

import asyncio
import json
import os
import time


async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            path = head.split()[1]
            length = int(head.split("content-length:")[1].split()[0])
            args = json.loads(await reader.readexactly(length))
            if path == "/block":
                with open(args["path"], "a") as file:
                    file.write("started\n")
                time.sleep(600)
            if path == "/stream_then_block":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n1\n")
                await writer.drain()
                with open(args["path"], "a") as file:
                    file.write("started\n")
                time.sleep(600)
            body = str(os.getpid()).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"status": "ready", "port": port, "pid": os.getpid()}), flush=True)
    await server.serve_forever()


asyncio.run(main())
