"""A worker that serves HTTP with FastAPI under uvicorn: its routes are its commands."""

import asyncio
import json
import os
import secrets
import socket

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

app = FastAPI()
# Removed from the environment, so that children of this worker do not inherit it.
SECRET = os.environ.pop("SNAKEPIT_SECRET", "")


@app.middleware("http")
async def only_the_host(request: Request, call_next):
    """Every user of the machine can reach a port of the loopback, but only the host knows the secret. A Unix socket needs no such check."""
    if not secrets.compare_digest(request.headers.get("snakepit-secret", ""), SECRET):
        return JSONResponse({"detail": "the secret is missing or wrong"}, status_code=403)
    return await call_next(request)


class Pair(BaseModel):
    a: float
    b: float


class Count(BaseModel):
    n: int


@app.post("/add")
async def add(pair: Pair) -> float:
    return pair.a + pair.b


@app.post("/count")
async def count(count: Count) -> StreamingResponse:
    async def lines():
        for number in range(count.n):
            yield json.dumps(number) + "\n"
            await asyncio.sleep(0)

    return StreamingResponse(lines(), media_type="application/x-ndjson")


async def main() -> None:
    path = os.environ.get("SNAKEPIT_SOCKET")
    if path:
        # The directory is private to this user.
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(512)
        place = {"socket": path}
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        place = {"port": listener.getsockname()[1]}
    # Connections wait in the listener's queue until the server accepts them, so the worker can be called from here on.
    commands = [route.path.strip("/") for route in app.routes if "POST" in getattr(route, "methods", ())]
    print(json.dumps({"status": "ready", **place, "pid": os.getpid(), "commands": commands}), flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listener])


asyncio.run(main())
