"""Commands that the tests of `snakepit call` use."""

import datetime
import os
import subprocess
import sys
import time

import snakepit


@snakepit.command
def add(a: int, b: int) -> int:
    return a + b


@snakepit.command
def echo(value):
    return value


@snakepit.command
def count(n: int):
    for number in range(n):
        yield number


@snakepit.command
def one_then_wait():
    yield "first"
    time.sleep(1000)
    yield "never"


@snakepit.command
def two_then_fail():
    yield 1
    yield 2
    raise ValueError("no third")


@snakepit.command
def fail(text: str):
    try:
        raise KeyError(text)
    except KeyError as error:
        raise ValueError("it failed") from error


@snakepit.command
def odd():
    return {"bytes": b"\x00\xff", "at": datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc), "nan": float("nan")}


@snakepit.command
def raw():
    return b"\x00\xff"


@snakepit.command
def keyed():
    return {None: 1}


@snakepit.command
def die(status: int):
    print("about to die", file=sys.stderr, flush=True)
    os._exit(status)


@snakepit.command
def talk():
    print("on stdout")
    print("on stderr", file=sys.stderr)
    snakepit.context().log("info", "in the log")
    return "done"


@snakepit.command
def session():
    return snakepit.context().session_id


@snakepit.command
def where():
    return [os.getcwd(), os.environ.get("MODE")]


@snakepit.command
def wait_with_family(file: str):
    """Starts a process, writes its pid to a file, and waits."""
    child = subprocess.Popen(["sleep", "1000"])
    with open(file, "w") as out:
        out.write(f"{child.pid}\n")
    time.sleep(1000)


@snakepit.command
def wait(seconds: float):
    snakepit.context().progress(0.25, "a quarter")
    time.sleep(seconds)


@snakepit.command
def stubborn(file: str):
    """Cannot be cancelled."""
    with open(file, "w") as out:
        out.write("ready\n")
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass


@snakepit.command
def stops_here(a: int):
    doubled = 2 * a
    breakpoint()
    return doubled


@snakepit.command
def escapes():
    """Raises an error with escape sequences in each of its texts."""
    try:
        raise KeyError("\x1b]0;owned\x07")
    except KeyError as error:
        told = ValueError("\x1b[2Jgone \x9b31m \u202eback")
        if hasattr(told, "add_note"):
            told.add_note("\x1b[31mnote")
        raise told from error


@snakepit.command
def escaped_value():
    return "\x1b[2J\x9b31m"


@snakepit.command
def train(file: str):
    """Draws like tqdm: a bar and another one below it. A line from the file starts each next step."""
    def draw(text, below=0):
        for part in ("\n" * below, f"\r{text}", "\x1b[A" * below):
            sys.stderr.write(part)
            sys.stderr.flush()

    with open(file) as gate:
        for step in range(3):
            draw(f"epoch: {step * 50:3}%|{'█' * step}{' ' * (2 - step)}| {step}/2")
            if step < 2:
                draw(f"batch: {step * 10:3}%|", below=1)
            gate.readline()
    sys.stderr.write("\n")
    print("trained")
