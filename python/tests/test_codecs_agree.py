"""The two codecs produce the same bytes and the same values for every input."""

import collections
import dataclasses
import datetime
import decimal
import enum
import math
import os
import random
import struct

import pytest
from harness import decode, encode
from snakepit.value.encode import Bodied
from snakepit.value.error import BadPayload, BadValue, TooLong
from vectors import exact

msgspec_codec = pytest.importorskip("snakepit.value.msgspec_codec")
ROUNDS = 2000 if os.environ.get("SNAKEPIT_QUICK") else 10000


class Colour(enum.Enum):
    RED = "red"
    DEEP = (1, 2)


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    pass


class Number(int):
    def __int__(self):
        return 7


class Liar(list):
    def __len__(self):
        return 99


@dataclasses.dataclass
class Point:
    x: int
    y: object = None


Pair = collections.namedtuple("Pair", "left right")
ODD = [
    Colour.RED, Colour.DEEP, Level.LOW, Text("sub"), Number(5), Liar([1, 2]), Point(1, b"x"), Pair(1, "a"),
    bytearray(b"abc"), memoryview(b"abcdef")[::2], memoryview(struct.pack("3i", 1, 2, 3)).cast("i"), frozenset([1]),
    collections.OrderedDict(a=1), collections.defaultdict(list, b=[1]), collections.Counter("aab"),
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4), datetime.datetime(1, 1, 1), datetime.datetime.max,
    datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=-3, minutes=-30))),
    datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(microseconds=5))),
    complex(1, 2), ..., decimal.Decimal("1.5"), datetime.date(2024, 1, 1), datetime.time(1), datetime.timedelta(1),
    object(), int, len, (i for i in ()), 2**64, -(2**63) - 1, 10**50, "\ud800", "ok\udfff", Ellipsis, NotImplemented,
    compile("1", "x", "eval"), range(3), struct.Struct("i"),
]


def scalar(rng):
    pick = rng.randrange(14)
    if pick == 0:
        return None
    if pick == 1:
        return rng.random() < 0.5
    if pick < 5:
        bits = rng.choice((3, 5, 7, 8, 15, 16, 31, 32, 62, 63, 64, 65, 130))
        return rng.randrange(-(1 << bits), 1 << bits) + rng.randrange(-1, 2)
    if pick == 5:
        return rng.choice((0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 5e-324, rng.random(), rng.gauss(0, 1e300)))
    if pick < 10:
        return "".join(rng.choice("ab\x00é日\U0001f40d\n") for _ in range(rng.choice((0, 1, 5, 31, 32, 90, 255, 256, 300))))
    if pick < 13:
        return rng.randbytes(rng.choice((0, 1, 20, 255, 256, 5000, (16 << 10) - 1, 16 << 10)))
    return rng.choice(ODD) if rng.random() < 0.3 else rng.randrange(100)


def value(rng, depth=0):
    pick = rng.randrange(10)
    if pick < 5 or depth > 4:
        return scalar(rng)
    size = rng.choice((0, 1, 2, 3, 15, 16, 17)) if depth == rng.randrange(2) else rng.randrange(4)
    if pick < 7:
        return [value(rng, depth + 1) for _ in range(size)]
    if pick == 7:
        return tuple(value(rng, depth + 1) for _ in range(size))
    if pick == 8 and rng.random() < 0.3:
        return {key(rng) for _ in range(size)}
    return {key(rng): value(rng, depth + 1) for _ in range(size)}


def key(rng):
    if rng.random() < 0.6:
        return "".join(rng.choice("abc_é") for _ in range(rng.randrange(8)))
    for _ in range(100):
        candidate = scalar(rng) if rng.random() < 0.9 else (scalar(rng), (scalar(rng),))
        try:
            hash(candidate)
        except (TypeError, ValueError):
            continue
        return candidate
    return 0


def outcome(function, *args):
    """Returns the outcome of a codec in comparable form."""
    try:
        result = function(*args)
    except (BadValue, BadPayload) as error:
        return type(error).__name__, str(error)
    if isinstance(result, Bodied):
        return "bodied", bytes(result.head), [bytes(raw) for raw in result.raws], result.size
    return ("bytes", result) if isinstance(result, bytes) and function in WRITERS else ("value", exact(result))


WRITERS = (encode.encode, msgspec_codec.encode)


def both_codecs_write_the_same_bytes_and_the_same_errors():
    rng = random.Random(20261115)
    seen = collections.Counter()
    for _ in range(ROUNDS):
        thing = value(rng)
        for bodies in (True, False):
            own = outcome(encode.encode, thing, "result", 1 << 20, bodies)
            fast = outcome(msgspec_codec.encode, thing, "result", 1 << 20, bodies)
            assert own == fast, thing
            seen[own[0]] += 1
    assert all(seen[kind] > 20 for kind in ("bytes", "bodied", "BadValue")), seen


def both_codecs_read_what_was_written_alike():
    rng = random.Random(4)
    for _ in range(ROUNDS):
        try:
            data = encode.encode(value(rng), bodies=False)
        except BadValue:
            continue
        assert outcome(decode.decode, data) == outcome(msgspec_codec.decode, data)


def both_codecs_refuse_the_same_broken_bytes_in_the_same_words():
    rng = random.Random(5)
    refused = 0
    for _ in range(ROUNDS):
        try:
            data = bytearray(encode.encode(value(rng), bodies=False)[:400])
        except BadValue:
            data = bytearray(rng.randbytes(rng.randrange(60)))
        for _ in range(rng.randrange(4)):
            if data:
                data[rng.randrange(len(data))] = rng.choice((0xC1, 0xC7, 0xD4, 0xD7, 0xFF, 0x81, 0x91, rng.randrange(256)))
        bodies = rng.choice((None, b"", b"0123456789"))
        own = outcome(decode.decode, bytes(data), bodies)
        assert own == outcome(msgspec_codec.decode, bytes(data), bodies), bytes(data).hex()
        refused += own[0] == "BadPayload"
    assert refused > ROUNDS // 10


@pytest.mark.parametrize("levels", [1, 127, 128, 129, 130, 500, 3000])
def both_codecs_have_the_same_limit_of_depth(levels):
    nested = []
    for _ in range(levels - 1):
        nested = [nested] if levels % 2 else {"a": nested}
    own = outcome(encode.encode, nested)
    assert own == outcome(msgspec_codec.encode, nested)
    assert (own[0] == "BadValue") == (levels > 128)
    data = b"\x91" * (levels - 1) + b"\x90"
    own = outcome(decode.decode, data)
    assert own == outcome(msgspec_codec.decode, data)
    assert (own[0] == "BadPayload") == (levels > 128)


def a_wide_value_is_not_taken_for_a_deep_one():
    rows = [{"a": [i], "b": (i,)} for i in range(1000)]
    data = msgspec_codec.encode(rows)
    assert data == encode.encode(rows)
    assert exact(msgspec_codec.decode(data)) == exact(decode.decode(data))


def a_value_that_holds_itself_is_refused_at_once():
    loop = []
    loop.append(loop)
    loop.append(loop)
    table = {}
    table["a"] = table["b"] = table
    for cyclic in (loop, table):
        for encode in WRITERS:
            with pytest.raises(BadValue, match="deeper"):
                encode(cyclic)


def a_small_value_that_is_huge_on_the_wire_stops_at_the_limit():
    bomb = []
    for _ in range(60):
        bomb = [bomb, bomb]
    for encode in WRITERS:
        with pytest.raises(TooLong) as caught:
            encode(bomb, "result", 1 << 16)
        assert caught.value.path == "result"


@pytest.mark.parametrize("encode", WRITERS)
def a_refused_value_is_named_by_its_path(encode):
    rows = [{"price": 1.0}, {"price": 2.0}, {"price": 3.0}, {"price": decimal.Decimal("1.10")}]
    with pytest.raises(BadValue) as caught:
        encode({"rows": rows})
    assert caught.value.path == "result.rows[3].price"
    assert "decimal.Decimal" in str(caught.value) and "str(x)" in str(caught.value)
    with pytest.raises(BadValue) as caught:
        encode({1: [{"a b": {"c": object()}}]}, "item")
    assert caught.value.path == "item[1][0]['a b'].c"


@pytest.mark.parametrize("encode", WRITERS)
def a_large_byte_string_becomes_a_body_without_a_copy(encode):
    big = bytes(20000)
    for whole in (big, [big], {"a": big, "b": 1}, (1, big)):
        encoded = encode(whole)
        assert isinstance(encoded, Bodied)
        assert encoded.raws[0] is big
    assert isinstance(encode([[big]]), bytes)
    assert isinstance(encode(big[: (16 << 10) - 1]), bytes)
