"""Results of annotated types. Each is marked for the writer, which then converts what is not a builtin.

Owns the three ways in which a command delivers its results: at once, later, and as a stream. Must not know the wire.
"""

from ..value.encode import Typed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, AsyncIterator, Callable, Iterator

    from .registry import Command


def converting(command: "Command") -> "Callable[[Any], Any]":
    """Returns the command's `run` with its results marked."""
    run = command.run
    if command.streams:
        items = _async_items if command.is_async else _items
        return lambda args: items(run(args))
    if command.is_async:
        return lambda args: _later(run(args))
    return lambda args: Typed(run(args))


async def _later(result: "Any") -> Typed:
    return Typed(await result)


def _items(items: "Any") -> "Iterator[Typed]":
    """Yields the items of a generator, and passes cancels and its close on to it."""
    step, value = items.__next__, ()
    while True:
        try:
            item = step(*value)
        except StopIteration:
            return
        step, value = items.__next__, ()
        try:
            yield Typed(item)
        except GeneratorExit:
            items.close()
            raise
        except BaseException as error:
            step, value = items.throw, (error,)  # type: ignore[assignment]


async def _async_items(items: "Any") -> "AsyncIterator[Typed]":
    step, value = items.__anext__, ()
    while True:
        try:
            item = await step(*value)
        except StopAsyncIteration:
            return
        step, value = items.__anext__, ()
        try:
            yield Typed(item)
        except GeneratorExit:
            await items.aclose()
            raise
        except BaseException as error:
            step, value = items.athrow, (error,)  # type: ignore[assignment]
