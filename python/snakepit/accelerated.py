"""The codec over msgspec: the results of `values.py` and `encode.py`, faster.

Owns the proof that msgspec may be asked at all. Writing: a value goes to msgspec only if it consists of exact builtin
types alone, which both codecs write alike; everything else, and everything that msgspec refuses, goes to `encode.py`.
Reading: msgspec reads what it accepts, extension types through our own reader; everything that it refuses, and
everything that may be nested too deep, goes to `values.py`. So each value has one meaning, whoever codes it.
"""

from gc import get_referents
from itertools import compress

from msgspec.msgpack import Decoder, Encoder, Ext

from . import values
from .encode import encode as encode_plainly
from .values import BODY, BODY_SIZE, EXT_BODY, MAX_DEPTH, Bodied, TooLong, extension

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

    from .encode import Encoded

_encode = Encoder().encode
_decode = Decoder(ext_hook=extension).decode
# For the arrays of small frames: too few bytes to be nested too deep.
read_small = Decoder(list, ext_hook=extension).decode
# For exact scalars. What msgspec cannot write (a big integer, a lone surrogate), `encode` can, or explains.
write_small = _encode

_SCALARS = frozenset((type(None), bool, int, float, str))
# No frozenset: as a key, which msgspec would write as an array, it has to be refused.
_CONTAINERS = frozenset((list, dict, tuple, set))
_LEAVES = _SCALARS | {bytes}
_PLAIN = _LEAVES | _CONTAINERS
_is_container = _CONTAINERS.__contains__

# A value that shares parts can be small in memory and huge on the wire; counting stops here.
_MAX_CONTAINERS = 1 << 20
# Every byte that can begin a list or a map. Fewer of them than levels allowed: no need to look at the value.
_NOT_NESTING = bytes(sorted(set(range(256)) - set(range(0x80, 0xA0)) - set(range(0xDC, 0xE0))))


def encode(value: "Any", root: str = "result", limit: int = 1 << 32, bodies: bool = True) -> "Encoded":
    """As `encode.encode`."""
    kind = type(value)
    try:
        if kind in _SCALARS or (kind is bytes and (len(value) < BODY_SIZE or not bodies)):
            data = _encode(value)
        elif kind in _CONTAINERS:
            inside = get_referents(value)
            types = set(map(type, inside))
            if bytes in types and bodies and _has_body(inside):
                return _encode_bodied(value, root, limit)
            if not types <= _LEAVES and not _is_plain(inside):
                return encode_plainly(value, root, limit, bodies)
            data = _encode(value)
        else:
            return encode_plainly(value, root, limit, bodies)
    except TooLong:
        raise
    except Exception:  # what msgspec cannot write, encode.py can write or explain
        return encode_plainly(value, root, limit, bodies)
    if len(data) > limit:
        raise TooLong(limit, root)
    return data


def _is_plain(level: "List[Any]") -> bool:
    """Whether everything in and below these is of plain types, and not nested too deep. `level` is at depth 1."""
    containers = 1
    for _ in range(MAX_DEPTH):
        if not set(map(type, level)) <= _PLAIN:
            return False
        inner = list(compress(level, map(_is_container, map(type, level))))
        if not inner:
            return True
        containers += len(inner)
        if containers > _MAX_CONTAINERS:
            return False
        level = get_referents(*inner)
    return False


def _has_body(items: "List[Any]") -> bool:
    return any(type(item) is bytes and len(item) >= BODY_SIZE for item in items)


def _encode_bodied(value: "Any", root: str, limit: int) -> "Encoded":
    """Large byte strings one level down: the head is written by msgspec with references in their places."""
    if type(value) is set or not _is_plain(get_referents(value)):
        return encode_plainly(value, root, limit)
    raws: "List[bytes]" = []
    offset = 0

    def reference(item: "Any") -> "Any":
        nonlocal offset
        if type(item) is bytes and len(item) >= BODY_SIZE:
            raws.append(item)
            offset += len(item)
            return Ext(EXT_BODY, BODY.pack(offset - len(item), len(item)))
        return item

    try:
        if type(value) is dict:
            head = _encode({key: reference(item) for key, item in value.items()})
        else:
            head = _encode([reference(item) for item in value])
    except Exception:
        return encode_plainly(value, root, limit)
    if not raws:
        return encode_plainly(value, root, limit)
    if 4 + len(head) + offset > limit:
        raise TooLong(limit, root)
    return Bodied(head, raws, offset)


def decode(payload: "Any", bodies: "Any" = None, depth: int = MAX_DEPTH) -> "Any":
    """As `values.decode`."""
    try:
        if bodies is None:
            value = _decode(payload)
        else:
            value = Decoder(ext_hook=lambda code, data: extension(code, data, bodies)).decode(payload)
    except Exception:  # values.py says what is wrong with it
        return values.decode(payload, bodies, depth)
    if len(payload) > depth and _is_deep(payload, value, depth):
        return values.decode(payload, bodies, depth)
    return value


def _is_deep(payload: "Any", value: "Any", depth: int) -> bool:
    if len(bytes(payload).translate(None, _NOT_NESTING)) <= depth:
        return False
    level = [value]
    for _ in range(depth + 1):
        level = list(compress(level, map(_is_container, map(type, level))))
        if not level:
            return False
        level = get_referents(*level)
    return True
