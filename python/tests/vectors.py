"""Reads spec/vectors."""

import json
import os
import struct
from datetime import datetime, timedelta, timezone

from harness import ROOT


def load(name):
    with open(os.path.join(ROOT, "spec", "vectors", name)) as file:
        return json.load(file)


def value_of(note):
    """Returns the Python value of the notation."""
    ((kind, content),) = note.items()
    if kind == "nil":
        return None
    if kind in ("bool", "str"):
        return content
    if kind == "int":
        return int(content)
    if kind == "float_bits":
        return struct.unpack(">d", bytes.fromhex(content))[0]
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "list":
        return [value_of(item) for item in content]
    if kind == "map":
        return {frozen(value_of(key)): value_of(item) for key, item in content}
    if kind == "naive":
        return datetime(1970, 1, 1) + timedelta(microseconds=int(content))
    assert kind == "aware", kind
    micros, offset = map(int, content)
    instant = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)
    return instant.astimezone(timezone(timedelta(seconds=offset)))


def frozen(value):
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value


def exact(value):
    """Returns a text that distinguishes what the wire distinguishes: 1, 1.0 and True, and -0.0 and 0.0, but not one
    NaN from another."""
    return repr(value)
