"""Writing values: which values can be sent, and their bytes.

Owns the encoder that defines, for Python, the semantics of `spec/wire.md`, section Values. `decode.py` reads what this
file writes. `msgspec_codec.py` gives the same results faster, and leaves to this file all values that it is not sure
about. Must not know frames or sockets.
"""

import sys
from itertools import repeat
from struct import Struct, error as struct_error

from .decode import AWARE, BODY, BODY_SIZE, EXT_AWARE, EXT_BIG, EXT_BODY, EXT_NAIVE, MAX_DEPTH, NAIVE
from .error import BadValue, TooLong, type_name

TYPE_CHECKING = False  # known to type checkers; importing typing would cost every start several milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple, Union

    Encoded = Union[bytes, "Bodied"]

# What the shortest ways of writing take: these, and texts and byte strings below SHORT, which fit into every frame.
NUMBERS = frozenset((type(None), bool, int, float))
TEXTS = frozenset((str, bytes))
SHORT = 1024
_U8, _U16, _U32, _U64 = (Struct(form).pack for form in (">BB", ">BH", ">BI", ">BQ"))
_I8, _I16, _I32, _I64 = (Struct(form).pack for form in (">Bb", ">Bh", ">Bi", ">Bq"))
_FLOAT = Struct(">Bd").pack
# The bytes of the integers from 0 to 127 and, as Python counts from the end, of those from -32 to -1.
_SMALL_INTS = [bytes((byte,)) for byte in (*range(0x80), *range(0xE0, 0x100))]
_GOOD = b"\x92\xc3"  # the beginning of a good entry of RESULTS: an array of two, true
_SHORT_TEXTS = [bytes((0xA0 | n,)) for n in range(0x20)]


class Bodied:
    """An encoded value with its large byte strings beside it, uncopied."""

    __slots__ = ("head", "raws", "size")

    def __init__(self, head: bytes, raws: "List[Any]", size: int) -> None:
        self.head = head
        self.raws = raws
        self.size = size

    def __len__(self) -> int:
        """Returns the length of the payload."""
        return 4 + len(self.head) + self.size


class _Writer:
    """The writer of one value.

    `raws` collects bodies, and is None if bodies are not wanted. `converts` is true while the writer is inside a value
    whose annotation names types that are not builtins: values of these types are then converted.
    """

    __slots__ = ("out", "raws", "offset", "limit", "converts")

    def __init__(self, raws: "Optional[List[Any]]", limit: int) -> None:
        self.out = bytearray()
        self.raws = raws
        self.offset = 0
        self.limit = limit
        self.converts = False


class Typed:
    """A result whose annotation names types that are not builtins. Values of these types are converted."""

    __slots__ = ("value",)

    def __init__(self, value: "Any") -> None:
        self.value = value


def encode(value: "Any", root: str = "result", limit: int = 1 << 32, bodies: bool = True) -> "Encoded":
    """Returns the value's bytes, or `Bodied` if it has large byte strings at its top or one level below."""
    raws: "Optional[List[Any]]" = [] if bodies else None
    writer = _Writer(raws, limit)
    try:
        _write(writer, value, 0)
        _check_size(writer, 4 if raws else 0)
    except BadValue as bad:
        bad.root = root
        raise
    if raws:
        return Bodied(bytes(writer.out), raws, writer.offset)
    return bytes(writer.out)


def write_small(value: "Any") -> "Any":
    """Does what `encode` does, with fewer steps for None, numbers, short texts and short byte strings."""
    kind = type(value)
    if kind is int:
        if -0x20 <= value < 0x80:
            return _SMALL_INTS[value]
        if 0 <= value < 0x100000000:
            return _U8(0xCC, value) if value < 0x100 else _U16(0xCD, value) if value < 0x10000 else _U32(0xCE, value)
    elif kind is str:
        data = value.encode()
        if len(data) < 0x20:
            return _SHORT_TEXTS[len(data)] + data
    elif kind is bytes:
        if len(value) < 0x100:
            return _U8(0xC4, len(value)) + value
    elif kind is float:
        return _FLOAT(0xCB, value)
    elif kind is bool:
        return b"\xc3" if value else b"\xc2"
    elif value is None:
        return b"\xc0"
    return encode(value)


def encode_good(results: "List[Any]", limit: int) -> bytes:
    """Returns the payload of a RESULTS in which every call has succeeded: `[true, result]` for each."""
    small: "List[Any]" = [b""]
    for result in results:
        kind = type(result)
        if not (kind in NUMBERS or kind in TEXTS and len(result) < SHORT):
            break
        small.append(write_small(result))
    else:
        data = _U32(0xDD, len(results)) + _GOOD.join(small)
        if len(data) > limit:
            raise TooLong(limit, "results")
        return data
    encoded = encode(list(zip(repeat(True), results)), "results", limit, False)
    assert type(encoded) is bytes
    return encoded


def _write(writer: _Writer, value: "Any", depth: int) -> None:
    write = _WRITERS.get(type(value))
    if write is None:
        _write_other(writer, value, depth)
    else:
        write(writer, value, depth)


def _write_none(writer: _Writer, value: None, depth: int) -> None:
    writer.out.append(0xC0)


def _write_bool(writer: _Writer, value: bool, depth: int) -> None:
    writer.out.append(0xC3 if value else 0xC2)


def _write_int(writer: _Writer, value: int, depth: int) -> None:
    out = writer.out
    if 0 <= value:
        if value < 0x80:
            out.append(value)
        elif value < 0x100:
            out += _U8(0xCC, value)
        elif value < 0x10000:
            out += _U16(0xCD, value)
        elif value < 0x100000000:
            out += _U32(0xCE, value)
        elif value < 0x10000000000000000:
            out += _U64(0xCF, value)
        else:
            _write_big(out, value)
    elif value >= -0x20:
        out.append(value & 0xFF)
    elif value >= -0x80:
        out += _I8(0xD0, value)
    elif value >= -0x8000:
        out += _I16(0xD1, value)
    elif value >= -0x80000000:
        out += _I32(0xD2, value)
    elif value >= -0x8000000000000000:
        out += _I64(0xD3, value)
    else:
        _write_big(out, value)


def _write_big(out: bytearray, value: int) -> None:
    # One bit is for the sign. In two's complement, the magnitude of a negative number is one less.
    bits = (value if value >= 0 else ~value).bit_length()
    _write_ext(out, EXT_BIG, value.to_bytes(bits // 8 + 1, "big", signed=True))


def _write_ext(out: bytearray, code: int, data: bytes) -> None:
    n = len(data)
    if n in _FIXED_EXT:
        out.append(_FIXED_EXT[n])
    elif n < 0x100:
        out += _U8(0xC7, n)
    elif n < 0x10000:
        out += _U16(0xC8, n)
    else:
        out += _U32(0xC9, n)
    out.append(code)
    out += data


_FIXED_EXT = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}


def _write_float(writer: _Writer, value: float, depth: int) -> None:
    writer.out += _FLOAT(0xCB, value)


def _write_str(writer: _Writer, value: str, depth: int) -> None:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise BadValue("text with a lone surrogate cannot be sent; encode it to bytes yourself") from None
    out, n = writer.out, len(data)
    if n < 0x20:
        out.append(0xA0 | n)
    elif n < 0x100:
        out += _U8(0xD9, n)
    elif n < 0x10000:
        out += _U16(0xDA, n)
    else:
        _check_size(writer, n)
        out += _U32(0xDB, n)
    out += data


def _write_bytes(writer: _Writer, value: "Any", depth: int) -> None:
    out, n = writer.out, len(value)
    if n >= BODY_SIZE and depth <= 1 and writer.raws is not None:
        _check_size(writer, n)
        _write_ext(out, EXT_BODY, BODY.pack(writer.offset, n))
        writer.raws.append(value)
        writer.offset += n
        return
    if n < 0x100:
        out += _U8(0xC4, n)
    elif n < 0x10000:
        out += _U16(0xC5, n)
    else:
        _check_size(writer, n)
        out += _U32(0xC6, n)
    out += value


def _write_memoryview(writer: _Writer, value: memoryview, depth: int) -> None:
    # Its length counts items, which may be larger than bytes, and its memory may have gaps.
    _write_bytes(writer, value.cast("B") if value.c_contiguous and value.ndim else value.tobytes(), depth)


def _check_size(writer: _Writer, more: int) -> None:
    if len(writer.out) + writer.offset + more > writer.limit:
        raise TooLong(writer.limit)


def _write_list(writer: _Writer, value: "Any", depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise BadValue(f"nested deeper than {MAX_DEPTH} levels")
    _check_size(writer, 0)
    out, n = writer.out, len(value)
    if n < 0x10:
        out.append(0x90 | n)
    elif n < 0x10000:
        out += _U16(0xDC, n)
    else:
        out += _U32(0xDD, n)
    depth += 1
    writers = _WRITERS
    done = 0
    try:
        for item in value:
            write = writers.get(type(item))
            if write is None:
                _write_other(writer, item, depth)
            else:
                write(writer, item, depth)
            done += 1
    except BadValue as bad:
        bad.steps.append(f"[{done}]")
        raise
    if done != n:
        raise RuntimeError("a list changed its size while it was sent")


def _write_dict(writer: _Writer, value: "Any", depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise BadValue(f"nested deeper than {MAX_DEPTH} levels")
    _check_size(writer, 0)
    out, n = writer.out, len(value)
    if n < 0x10:
        out.append(0x80 | n)
    elif n < 0x10000:
        out += _U16(0xDE, n)
    else:
        out += _U32(0xDF, n)
    depth += 1
    key: "Any" = None
    try:
        for key, item in value.items():
            if type(key) is str:
                _write_str(writer, key, depth)
            else:
                _write_key(writer, key, depth)
            _write(writer, item, depth)
    except BadValue as bad:
        bad.steps.append(_step(key))
        raise


def _loaded(module: str, name: str) -> "Any":
    """Returns a class of a module that we do not import ourselves. A value can have this type only if other code
    imported it.

    Another thread may be importing it right now. Then the class does not exist yet, and no value has this type.
    """
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else ()


def _write_key(writer: _Writer, key: "Any", depth: int) -> None:
    plain = key.value if isinstance(key, _loaded("enum", "Enum")) else key
    if not (plain is None or isinstance(plain, (str, int, float, bytes, tuple))):
        raise BadValue(f"a key of type {type_name(key)} cannot be sent; keys are scalars")
    raws, writer.raws = writer.raws, None  # a key is never a body
    _write(writer, plain, depth)
    writer.raws = raws


def _step(key: "Any") -> str:
    if isinstance(key, str) and key.isidentifier():
        return "." + key
    try:
        text = repr(key)
    except Exception:
        text = f"<{type_name(key)}>"
    return f"[{text if len(text) <= 80 else text[:77] + '...'}]"


def _write_other(writer: _Writer, value: "Any", depth: int) -> None:
    """Writes a value whose type is not a builtin itself: a subclass, an enum, a dataclass, a model or a datetime.

    Refuses all other values.
    """
    kind = type(value)
    if kind is Typed:
        writer.converts = True
        return _write(writer, value.value, depth)
    if isinstance(value, _loaded("enum", "Enum")):
        return _write(writer, value.value, depth)
    if hasattr(kind, "__dataclass_fields__"):
        return _write_dataclass(writer, value, depth)
    if isinstance(value, _loaded("datetime", "datetime")):
        return _write_datetime(writer, value)
    if isinstance(value, _loaded("pydantic", "BaseModel")):
        return _write_fields(writer, value.model_dump() if hasattr(kind, "model_dump") else value.dict(), depth)
    if writer.converts:
        for module, name, convert in _CONVERTED:
            if isinstance(value, _loaded(module, name)):
                return _write(writer, convert(value), depth)
    for base, write, plain in _BASES:
        if isinstance(value, base):
            return write(writer, plain(value), depth)
    raise BadValue(f"{type_name(value)} cannot be sent; {_WAYS_OUT.get(kind.__name__, _ANY_WAY_OUT)}")


def _write_dataclass(writer: _Writer, value: "Any", depth: int) -> None:
    fields = {}
    for name, field in type(value).__dataclass_fields__.items():
        if getattr(field._field_type, "name", "") == "_FIELD":
            try:
                fields[name] = getattr(value, name)
            except AttributeError:
                raise BadValue(f"the dataclass {type_name(value)} has no value for its field {name!r}") from None
    _write_fields(writer, fields, depth)


def _write_fields(writer: _Writer, fields: "Dict[str, Any]", depth: int) -> None:
    """Writes the fields of a class, whose annotations give their types."""
    before, writer.converts = writer.converts, True
    _write_dict(writer, fields, depth)
    writer.converts = before


def _write_datetime(writer: _Writer, value: "Any") -> None:
    import datetime

    micro = datetime.timedelta(microseconds=1)
    if getattr(value, "nanosecond", 0):
        raise BadValue(f"{type_name(value)} with nanoseconds cannot be sent; round it to microseconds")
    try:
        offset = value.utcoffset()
        local = (value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)) // micro
        if offset is None:
            _write_ext(writer.out, EXT_NAIVE, NAIVE.pack(local))
            return
        if offset.microseconds:
            raise BadValue("a datetime whose offset has fractions of a second cannot be sent; round the offset to seconds")
        _write_ext(writer.out, EXT_AWARE, AWARE.pack(local - offset // micro, offset // datetime.timedelta(seconds=1)))
    except (TypeError, AttributeError, ArithmeticError, struct_error) as error:
        raise BadValue(f"{type_name(value)} cannot be sent as a datetime: {error}") from None


# The types that are converted where an annotation names them: a module, its class, and the conversion.
# `commands/conversion.py` converts them back.
_CONVERTED: "Tuple[Tuple[str, str, Callable[[Any], Any]], ...]" = (
    ("decimal", "Decimal", str),
    ("uuid", "UUID", str),
    ("datetime", "date", lambda value: value.isoformat()),
    ("datetime", "time", lambda value: value.isoformat()),
    ("datetime", "timedelta", lambda value: value.total_seconds()),
    ("pathlib", "PurePath", str),
    ("numpy", "generic", lambda value: value.item()),
    ("numpy", "ndarray", lambda value: value.tolist()),
)
_ANY_WAY_OUT = "send builtin types: None, bool, int, float, str, bytes, list, dict, datetime"
_WAYS_OUT = {
    "Decimal": "annotate the command with -> Decimal, or send str(x)",
    "UUID": "annotate the command with -> UUID, or send str(x)",
    "date": "annotate the command with -> date, or send x.isoformat()",
    "time": "annotate the command with -> time, or send x.isoformat()",
    "timedelta": "annotate the command with -> timedelta, or send x.total_seconds()",
    "complex": "send [x.real, x.imag]",
    "ndarray": "annotate the command with -> np.ndarray, or send x.tolist(), or x.tobytes() with its dtype and shape",
    "generator": "a command that is to stream must itself be a generator (use yield in it)",
    "coroutine": "declare the command with async def, or await it",
    **{name: "send x.item()" for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    **{name: "send x.item()" for name in ("float16", "float32", "bool_", "bool")},
}
_WRITERS: "Dict[type, Callable[[_Writer, Any, int], None]]" = {
    type(None): _write_none,
    bool: _write_bool,
    int: _write_int,
    float: _write_float,
    str: _write_str,
    bytes: _write_bytes,
    bytearray: _write_bytes,
    memoryview: _write_memoryview,
    list: _write_list,
    tuple: _write_list,
    set: _write_list,
    frozenset: _write_list,
    dict: _write_dict,
}
# Subclasses are written as the type that they extend. The value is first copied to the plain type, because an
# overridden `__len__` that disagrees with the iteration must not reach the wire.
_BASES: "Tuple[Tuple[type, Callable[[_Writer, Any, int], None], Callable[[Any], Any]], ...]" = (
    (str, _write_str, str.__str__),
    (int, _write_int, int.__int__),
    (float, _write_float, float.__float__),
    (bytes, _write_bytes, lambda value: bytes(memoryview(value))),
    (bytearray, _write_bytes, lambda value: bytes(memoryview(value))),
    (dict, _write_dict, lambda value: dict(value.items())),
    (list, _write_list, list),
    (tuple, _write_list, list),
    (set, _write_list, list),
    (frozenset, _write_list, list),
)
