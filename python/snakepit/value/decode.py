"""Reading values: MessagePack with our extension types, as defined in `spec/wire.md`, section Values.

Owns the limits and the reader; `encode.py` is its counterpart. `msgspec_codec.py` gives the same results faster, and
leaves to these two files all values that it is not sure about. Must not know frames or sockets.
"""

from struct import Struct

from .error import BadPayload

TYPE_CHECKING = False  # known to type checkers; importing typing would cost every start several milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Tuple

MAX_DEPTH = 128
BODY_SIZE = 16 * 1024
EXT_BIG, EXT_AWARE, EXT_NAIVE, EXT_BODY = 1, 2, 3, 5

AWARE = Struct("<qi")
NAIVE = Struct("<q")
BODY = Struct("<II")

_NUMBERS = {
    0xCA: Struct(">f"),
    0xCB: Struct(">d"),
    0xCC: Struct(">B"),
    0xCD: Struct(">H"),
    0xCE: Struct(">I"),
    0xCF: Struct(">Q"),
    0xD0: Struct(">b"),
    0xD1: Struct(">h"),
    0xD2: Struct(">i"),
    0xD3: Struct(">q"),
}
_U16, _U32 = Struct(">H").unpack_from, Struct(">I").unpack_from
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
# The byte that announces a value, and the number of length bytes that follow it.
_TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_LISTS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


def decode(payload: "Any", bodies: "Any" = None, depth: int = MAX_DEPTH) -> "Any":
    """Returns the one value in these bytes. `depth` is the number of levels that it may have, including its
    envelope."""
    data = bytes(payload)
    try:
        value, stop = _read(data, 0, depth, bodies)
    except IndexError:
        raise BadPayload("the bytes end before the value does") from None
    if stop != len(data):
        raise BadPayload(f"{len(data) - stop} bytes follow the value")
    return value


def _read(data: bytes, pos: int, depth: int, bodies: "Any") -> "Tuple[Any, int]":
    first = data[pos]
    pos += 1
    if first < 0x80:
        return first, pos
    if first >= 0xE0:
        return first - 0x100, pos
    if first >= 0xC0:
        return _read_long(data, first, pos, depth, bodies)
    if first >= 0xA0:
        return _text(data, pos, first & 0x1F)
    if first >= 0x90:
        return _list(data, pos, first & 0x0F, depth, bodies)
    return _map(data, pos, first & 0x0F, depth, bodies)


def _read_long(data: bytes, first: int, pos: int, depth: int, bodies: "Any") -> "Tuple[Any, int]":
    if first in _CONSTANTS:
        return _CONSTANTS[first], pos
    number = _NUMBERS.get(first)
    if number is not None:
        stop = pos + number.size
        if stop > len(data):
            raise IndexError
        return number.unpack_from(data, pos)[0], stop
    if first in _TEXTS:
        n, pos = _length(data, pos, _TEXTS[first])
        return _text(data, pos, n)
    if first in _BYTES:
        n, pos = _length(data, pos, _BYTES[first])
        return _slice(data, pos, n), pos + n
    if first in _LISTS:
        n, pos = _length(data, pos, _LISTS[first])
        return _list(data, pos, n, depth, bodies)
    if first in _MAPS:
        n, pos = _length(data, pos, _MAPS[first])
        return _map(data, pos, n, depth, bodies)
    if first in _FIXED_EXTENSIONS:
        n = _FIXED_EXTENSIONS[first]
    elif first in _EXTENSIONS:
        n, pos = _length(data, pos, _EXTENSIONS[first])
    else:
        raise BadPayload("the byte c1, which has no meaning")
    code = data[pos]
    pos += 1
    return extension(code if code < 0x80 else code - 0x100, _slice(data, pos, n), bodies), pos + n


def _length(data: bytes, pos: int, size: int) -> "Tuple[int, int]":
    stop = pos + size
    if stop > len(data):
        raise IndexError
    if size == 1:
        return data[pos], stop
    return (_U16 if size == 2 else _U32)(data, pos)[0], stop


def _slice(data: bytes, pos: int, n: int) -> bytes:
    if n > len(data) - pos:
        raise IndexError
    return data[pos : pos + n]


def _text(data: bytes, pos: int, n: int) -> "Tuple[str, int]":
    try:
        return _slice(data, pos, n).decode(), pos + n
    except UnicodeDecodeError as error:
        raise BadPayload(f"a text is not UTF-8: {error.reason}") from None


def _list(data: bytes, pos: int, n: int, depth: int, bodies: "Any") -> "Tuple[List[Any], int]":
    if depth <= 0:
        raise BadPayload(f"nested deeper than {MAX_DEPTH} levels")
    if n > len(data) - pos:  # every value has at least one byte
        raise IndexError
    items: "List[Any]" = []
    append, numbers = items.append, _NUMBERS
    depth -= 1
    for _ in range(n):
        first = data[pos]
        # Lists of numbers and of arguments are the inputs of maps and batches: without a call of `_read` for each, they
        # take half the time.
        if first < 0x80:
            append(first)
            pos += 1
        elif first < 0x90:
            item, pos = _map(data, pos + 1, first & 0x0F, depth, bodies)
            append(item)
        elif first in numbers:
            number = numbers[first]
            stop = pos + 1 + number.size
            if stop > len(data):
                raise IndexError
            append(number.unpack_from(data, pos + 1)[0])
            pos = stop
        else:
            item, pos = _read(data, pos, depth, bodies)
            append(item)
    return items, pos


def _map(data: bytes, pos: int, n: int, depth: int, bodies: "Any") -> "Tuple[Dict[Any, Any], int]":
    if depth <= 0:
        raise BadPayload(f"nested deeper than {MAX_DEPTH} levels")
    if 2 * n > len(data) - pos:
        raise IndexError
    items: "Dict[Any, Any]" = {}
    key: "Any"
    value: "Any"
    depth -= 1
    for _ in range(n):
        first = data[pos]
        if 0xA0 <= first < 0xC0:
            key, pos = _key(data, pos + 1, first & 0x1F)
        else:
            key, pos = _read(data, pos, depth, bodies)
            if type(key) is list:
                key = _frozen(key)
        first = data[pos]
        if first < 0x80:
            value = first
            pos += 1
        elif first == 0xC4:  # a short byte string
            stop = pos + 2 + data[pos + 1]
            if stop > len(data):
                raise IndexError
            value = data[pos + 2 : stop]
            pos = stop
        else:
            value, pos = _read(data, pos, depth, bodies)
        try:
            items[key] = value
        except TypeError:
            raise BadPayload("a map cannot be a key") from None
    return items, pos


def _key(data: bytes, pos: int, n: int) -> "Tuple[str, int]":
    """Reads a short key. The names of arguments come again and again, so the first ones are remembered."""
    raw = data[pos : pos + n]
    key = _keys.get(raw)
    if key is None or len(raw) < n:
        key, _ = _text(data, pos, n)
        if len(_keys) < MOST_KEYS:
            _keys[raw] = key
    return key, pos + n


_keys: "Dict[bytes, str]" = {}
MOST_KEYS = 256


def _frozen(key: "List[Any]") -> "Tuple[Any, ...]":
    return tuple(_frozen(item) if type(item) is list else item for item in key)


def extension(code: int, data: "Any", bodies: "Any" = None) -> "Any":
    """Returns the value of an extension type. `bodies` is what follows the head of its frame."""
    if code == EXT_BODY:
        if len(data) != 8:
            raise BadPayload(f"extension type 5 with {len(data)} bytes instead of 8")
        offset, n = BODY.unpack(data)
        if bodies is None or offset + n > len(bodies):
            raise BadPayload("a byte string is not inside the bodies of its frame")
        if n == len(bodies) and type(bodies) is bytes:
            return bodies
        return bytes(bodies[offset : offset + n])
    if code == EXT_BIG:
        if not data:
            raise BadPayload("extension type 1 without bytes")
        return int.from_bytes(data, "big", signed=True)
    if code == EXT_AWARE or code == EXT_NAIVE or code == -1:
        return _datetime(code, bytes(data))
    raise BadPayload(f"unknown extension type {code}")


def _datetime(code: int, data: bytes) -> "Any":
    from datetime import datetime, timedelta, timezone

    offset = 0
    if code == -1:
        micros = _timestamp(data)
    elif len(data) != (12 if code == EXT_AWARE else 8):
        raise BadPayload(f"extension type {code} with {len(data)} bytes")
    elif code == EXT_AWARE:
        micros, offset = AWARE.unpack(data)
    else:
        micros = NAIVE.unpack(data)[0]
    try:
        local = datetime(1970, 1, 1) + timedelta(seconds=offset, microseconds=micros)
        if code == EXT_NAIVE:
            return local
        return local.replace(tzinfo=timezone(timedelta(seconds=offset)) if offset else timezone.utc)
    except (OverflowError, ValueError):
        raise BadPayload("a date-time that Python's datetime cannot hold") from None


def _timestamp(data: bytes) -> int:
    """Returns the time of MessagePack's own timestamp, in whole microseconds."""
    n = len(data)
    if n == 4:
        nanos, seconds = 0, int.from_bytes(data, "big")
    elif n == 8:
        both = int.from_bytes(data, "big")
        nanos, seconds = both >> 34, both & 0x3FFFFFFFF
    elif n == 12:
        nanos, seconds = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:], "big", signed=True)
    else:
        raise BadPayload(f"a timestamp with {n} bytes")
    if nanos >= 1_000_000_000:
        raise BadPayload("a timestamp with more nanoseconds than a second has")
    return seconds * 1_000_000 + nanos // 1000
