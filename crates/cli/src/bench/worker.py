"""The worker that `snakepit bench` calls."""

import sys

import snakepit


@snakepit.command
def echo(data):
    return data


@snakepit.command
def count(n: int):
    yield from range(n)


@snakepit.command
def who():
    try:
        import msgspec

        codec = f"msgspec {msgspec.__version__}"
    except ImportError:
        codec = "the SDK's own codec (msgspec is not installed)"
    return [sys.executable, f"Python {sys.version.split()[0]}, {codec}"]
