"""Commands that report which trace they belong to. With ASYNC=1 in the environment, some of them are coroutines."""

import os

import snakepit


@snakepit.command
def where():
    return snakepit.trace_context()


@snakepit.command
def where_with(value):
    return [value, snakepit.trace_context()]


@snakepit.command
def everywhere(n: int):
    for _ in range(n):
        yield snakepit.trace_context()


@snakepit.command
def spans():
    """Returns the trace context before a span, in it, in a span of that, and after it."""
    seen = [snakepit.trace_context()]
    with snakepit.span("outer", rows=3) as outer:
        outer.set(kind="test")
        seen.append(snakepit.trace_context())
        with snakepit.span("inner"):
            seen.append(snakepit.trace_context())
    seen.append(snakepit.trace_context())
    return seen


@snakepit.command
def fails_in_a_span():
    with snakepit.span("failing"):
        raise ValueError("it failed")


@snakepit.command
def ask(tool: str):
    """Calls a tool from inside a span."""
    with snakepit.span("asking"):
        return [snakepit.trace_context(), snakepit.context().host.call(tool), snakepit.trace_context()]


@snakepit.command
def ask_plainly(tool: str):
    return snakepit.context().host.call(tool)


@snakepit.command(batch=8, window="50ms")
def together(value):
    return [[len(value), snakepit.trace_context()] for _ in value]


@snakepit.command(batch=8, window="50ms")
def each_alone(value):
    """A batch that must be executed one by one."""
    if len(value) > 1:
        raise ValueError("one at a time")
    return [snakepit.trace_context()]


if os.environ.get("ASYNC"):
    import asyncio

    @snakepit.command
    async def meet(n: int):
        """Runs tasks of the same loop, each in its own trace."""
        seen = [snakepit.trace_context()]
        for _ in range(n):
            with snakepit.span("step"):
                await asyncio.sleep(0)
                seen.append(snakepit.trace_context())
            await asyncio.sleep(0)
        return [*seen, snakepit.trace_context()]

    @snakepit.command
    async def ask_and_wait(tool: str):
        with snakepit.span("asking"):
            return [snakepit.trace_context(), await snakepit.context().host.call(tool)]
