"""Commands that belong to sessions."""

import os
import signal
import time

import snakepit

log = None


@snakepit.command
def who():
    context = snakepit.context()
    return [context.session_id, os.getpid()]


@snakepit.command
def slow_who(seconds: float, started: str = ""):
    if started:
        with open(started, "a") as file:
            file.write("started\n")
    time.sleep(seconds)
    return who()


@snakepit.command
def metadata():
    return snakepit.context().metadata


@snakepit.command
def put(key: str, value):
    snakepit.context().session.store[key] = value


@snakepit.command
def get(key: str):
    return snakepit.context().session.store.get(key)


@snakepit.command
def delete(key: str):
    return snakepit.context().session.store.delete(key)


@snakepit.command
def keys():
    return sorted(snakepit.context().session.store)


@snakepit.command
def remember(value):
    snakepit.context().session.local["value"] = value


@snakepit.command
def recall():
    return snakepit.context().session.local.get("value")


@snakepit.command
def log_ends(path: str):
    global log
    log = path


@snakepit.command
def die():
    os.kill(os.getpid(), signal.SIGKILL)


@snakepit.command
def store_of(session: str, tool: str, key: str = "", value=None):
    """Names an arbitrary session, which the SDK would not do."""
    args = {"session": session, "key": key, "value": value}
    return snakepit.context().host.call(f"snakepit.session.{tool}", **args)


@snakepit.command
def ask(tool: str):
    return snakepit.context().host.call(tool)


@snakepit.on_session_end
def ended(session):
    if log is not None:
        with open(log, "a") as file:
            file.write(f"{session.id} {session.local.get('value')}\n")
