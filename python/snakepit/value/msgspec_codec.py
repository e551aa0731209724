"""The codec on top of msgspec: the same results as `decode.py` and `encode.py`, but faster.

Owns the decision whether msgspec may handle a value. Writing: msgspec gets a value only if it consists entirely of
exact builtin types, which both codecs write alike. Everything else, and everything that msgspec refuses, goes to
`encode.py`. Reading: msgspec reads what it accepts, and extension types through our own reader. Everything that it
refuses, and everything that may be nested too deeply, goes to `decode.py`. So a value has one meaning, whichever codec
handles it.
"""

from gc import get_referents
from itertools import compress, repeat

from msgspec.msgpack import Decoder, Encoder, Ext

from . import decode as plain
from .decode import BODY, BODY_SIZE, EXT_BODY, MAX_DEPTH, extension
from .encode import Bodied, encode as encode_plainly, encode_good as encode_plainly_good
from .error import TooLong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

    from .encode import Encoded

_encode = Encoder().encode
_decode = Decoder(ext_hook=extension).decode
# For the arrays of small frames, which have too few bytes to be nested too deeply.
read_small = Decoder(list, ext_hook=extension).decode
# For exact scalars. `encode` writes what msgspec cannot write (a big integer, a lone surrogate), or explains the error.
write_small = _encode

_SCALARS = frozenset((type(None), bool, int, float, str))
# Without frozenset: as a key, msgspec would write it as an array, but it must be refused.
_CONTAINERS = frozenset((list, dict, tuple, set))
_LEAVES = _SCALARS | {bytes}
_PLAIN = _LEAVES | _CONTAINERS
_is_container = _CONTAINERS.__contains__

# A value that shares parts can be small in memory and huge on the wire, so counting stops here.
_MAX_CONTAINERS = 1 << 20


def encode(value: "Any", root: str = "result", limit: int = 1 << 32, bodies: bool = True) -> "Encoded":
    """Does what `encode.encode` does."""
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
    except Exception:  # encode.py writes or explains what msgspec cannot write
        return encode_plainly(value, root, limit, bodies)
    if len(data) > limit:
        raise TooLong(limit, root)
    return data


def encode_good(results: "List[Any]", limit: int) -> bytes:
    """Does what `encode.encode_good` does."""
    entries = list(zip(repeat(True), results))
    if set(map(type, results)) <= _LEAVES:
        try:
            data = _encode(entries)
        except Exception:  # encode.py writes or explains what msgspec cannot write
            return encode_plainly_good(results, limit)
        if len(data) > limit:
            raise TooLong(limit, "results")
        return data
    encoded = encode(entries, "results", limit, False)
    assert type(encoded) is bytes
    return encoded


def _is_plain(level: "List[Any]") -> bool:
    """Reports whether these values and everything in them have plain types and are not nested too deeply. `level` is
    at depth 1."""
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
    """Encodes a value with large byte strings one level down. msgspec writes the head, with references in place of
    the bytes."""
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
    """Does what `decode.decode` does."""
    try:
        if bodies is None:
            value = _decode(payload)
        else:
            value = Decoder(ext_hook=lambda code, data: extension(code, data, bodies)).decode(payload)
    except Exception:  # decode.py explains the error
        return plain.decode(payload, bodies, depth)
    if len(payload) > depth and _is_deep(value, depth):
        return plain.decode(payload, bodies, depth)
    return value


def _is_deep(value: "Any", depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        # The last level has the most values, and nothing but their types is needed.
        if _CONTAINERS.isdisjoint(set(map(type, level))):
            return False
        level = get_referents(*compress(level, map(_is_container, map(type, level))))
    return True
