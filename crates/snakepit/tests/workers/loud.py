"""A worker that prints something whatever it does."""

import os
import sys
import time
import traceback

import snakepit

print("imported")


@snakepit.command
def say(text: str):
    """Writes to both streams and to the log."""
    print(f"out {text}")
    print(f"err {text}", file=sys.stderr)
    snakepit.context().log("info", f"log {text}")
    return text


@snakepit.command
def shout(lines: int):
    for number in range(lines):
        print(f"line {number} " + "x" * 200)
        print(f"err {number}", file=sys.stderr)
    return lines


@snakepit.command
def fail(text: str):
    say(text)
    raise ValueError("it failed")


@snakepit.command
def fail_if(text: str, fails: bool):
    say(text)
    if fails:
        raise ValueError("it failed")
    return text


@snakepit.command
def sleep(text: str):
    say(text)
    time.sleep(60)


@snakepit.command
def die(text: str):
    say(text)
    os._exit(7)


@snakepit.command
def fail_with_a_traceback(text: str):
    """Fails like a program that logs what it raises."""
    try:
        raise KeyError(text)
    except KeyError:
        traceback.print_exc()
        raise


@snakepit.command
def print_and_sleep(lines: int, path: str):
    for number in range(lines):
        print(f"line {number}")
    with open(path, "w") as file:
        file.write("printed\n")
    time.sleep(60)


@snakepit.command
def draw_and_sleep(path: str):
    """Draws a progress bar that does not reach its end."""
    for number in range(50):
        print(f"\r{number} %", end="", file=sys.stderr, flush=True)
    with open(path, "w") as file:
        file.write("drawn\n")
    time.sleep(60)


@snakepit.command
def panic(reason: list, frames: int):
    """Ends like programs in other languages, with a long backtrace."""
    for line in reason:
        print(line, file=sys.stderr)
    for number in range(frames):
        print(f"  {number}: in some function\n      at some/place.rs:{number}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(101)


@snakepit.command
def count(n: int):
    for number in range(n):
        say(f"item {number}")
        yield number


@snakepit.command
def count_and_fail(n: int):
    yield from count(n)
    raise ValueError("no more")


@snakepit.on_session_end
def ended(session):
    print(f"session {session} has ended")
