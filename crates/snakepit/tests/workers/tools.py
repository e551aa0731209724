"""Commands that call tools of the host."""

import time

import snakepit


@snakepit.command
def echo(value):
    return value


@snakepit.command
def ask(tool: str, args: dict):
    return snakepit.context().host.call(tool, **args)


@snakepit.command
def ask_twice(tool: str, args: dict):
    host = snakepit.context().host
    return [host.call(tool, **args), host.call(tool, **args)]


@snakepit.command
def read(tool: str, args: dict):
    return list(snakepit.context().host.stream(tool, **args))


@snakepit.command
def read_some(tool: str, args: dict, items: int):
    taken = []
    for item in snakepit.context().host.stream(tool, **args):
        taken.append(item)
        if len(taken) == items:
            break
    return taken


@snakepit.command
def read_between(tool: str, between: str, items: int):
    """Calls another tool after each item."""
    host = snakepit.context().host
    taken = 0
    for _ in host.stream(tool):
        host.call(between)
        taken += 1
        if taken == items:
            break
    return taken


@snakepit.command
def read_to_error(tool: str, then: str):
    """Reads until the stream fails, and then calls another tool."""
    host = snakepit.context().host
    try:
        list(host.stream(tool))
    except snakepit.HostError as error:
        return [error.kind, host.call(then)]


@snakepit.command
def error_of(tool: str, args: dict):
    try:
        return snakepit.context().host.call(tool, **args)
    except snakepit.HostError as error:
        return [type(error).__name__, error.kind, error.message]


@snakepit.command
def down(levels: int):
    """Asks the host to call this command again, one level deeper."""
    if levels == 0:
        return 0
    return 1 + snakepit.context().host.call("down", levels=levels - 1)


@snakepit.command
def ping(levels: int):
    if levels == 0:
        return 0
    return 1 + snakepit.context().host.call("pong", levels=levels - 1)


@snakepit.command
def many_asks(tool: str, times: int):
    host = snakepit.context().host
    for _ in range(times):
        host.call(tool)


@snakepit.command
def sleep(seconds: float):
    time.sleep(seconds)


@snakepit.command
def raises(text: str):
    raise ValueError(text)
