"""A FastAPI application that knows nothing of Snakepit. `uvicorn plain:app` serves it. See the pool `plain` in snakepit.toml."""

import base64
from typing import Annotated

from fastapi import FastAPI, Header, HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

app = FastAPI()
items: dict[str, str] = {}

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Item(BaseModel):
    text: str


@app.get("/healthz")
async def healthz() -> str:
    return "ok"


@app.put("/items/{name}", status_code=204)
async def put_item(name: str, item: Item) -> None:
    items[name] = item.text


@app.get("/items/{name}")
async def get_item(name: str, upper: bool = False, authorization: Annotated[str, Header()] = "") -> Item:
    if authorization != "Bearer letmein":
        raise HTTPException(401, "the token is missing or wrong")
    if name not in items:
        raise HTTPException(404, f"there is no item {name}")
    return Item(text=items[name].upper() if upper else items[name])


@app.delete("/items/{name}", status_code=204)
async def delete_item(name: str) -> None:
    items.pop(name, None)


@app.post("/measure")
async def measure(request: Request) -> int:
    return len(await request.body())


@app.get("/picture")
async def picture() -> Response:
    return Response(PICTURE, media_type="image/png")


@app.get("/tokens")
async def tokens(text: str) -> StreamingResponse:
    async def events():
        for word in text.split():
            yield f"data: {word}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
