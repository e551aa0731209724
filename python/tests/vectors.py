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
    """The Python value of the notation."""
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
    """A text that tells apart whatever the wire tells apart: 1 from 1.0 from True, -0.0 from 0.0, one NaN like another."""
    return repr(value)
