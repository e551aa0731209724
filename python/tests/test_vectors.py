"""The vectors of the wire, read with both codecs."""

import struct

import pytest
from harness import decode, encode, frames
from snakepit.value.error import BadPayload
from vectors import exact, load, value_of

msgspec_codec = pytest.importorskip("snakepit.value.msgspec_codec")
CODECS = {"python": (decode.decode, encode.encode), "msgspec": (msgspec_codec.decode, msgspec_codec.encode)}


def names(rows):
    return [row["name"] for row in rows]


def bodies_of(row):
    return bytes.fromhex(row["bodies"]) if "bodies" in row else None


VALUES, INVALID, FRAMES = load("values.json"), load("invalid.json"), load("frames.json")
INVALID_FRAMES = load("invalid_frames.json")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("row", VALUES, ids=names(VALUES))
def a_value_reads_as_its_vector_says(row, codec):
    read, _ = CODECS[codec]
    value = read(memoryview(bytes.fromhex(row["hex"])), bodies_of(row))
    assert exact(value) == exact(value_of(row["value"]))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("row", [row for row in VALUES if not row.get("decode_only")], ids=lambda row: row["name"])
def a_value_is_written_as_its_vector_says(row, codec):
    _, encode = CODECS[codec]
    assert encode(value_of(row["value"])).hex() == row["hex"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("row", INVALID, ids=names(INVALID))
def an_invalid_vector_is_refused(row, codec):
    read, _ = CODECS[codec]
    with pytest.raises(BadPayload) as caught:
        read(memoryview(bytes.fromhex(row["hex"])), bodies_of(row))
    words = {
        "truncated": "end before", "trailing": "follow", "reserved": "c1", "utf8": "UTF-8", "depth": "deeper",
        "extension": "unknown extension", "extension_length": "bytes", "timestamp": "nanoseconds", "key": "key",
        "body": "bodies",
    }
    assert words[row["reason"]] in str(caught.value)


@pytest.mark.parametrize("row", FRAMES, ids=names(FRAMES))
def a_frame_has_the_fields_of_its_vector(row):
    data = bytes.fromhex(row["hex"])
    length, word, call = frames.unpack_header(data)
    payload = memoryview(data)[frames.HEADER_SIZE :]
    assert (length, word, call) == (len(payload), frames.word_of(row["kind"], row["flags"]), int(row["call"]))
    bodies = None
    if row["flags"] & frames.BODIES:
        payload, bodies = frames.split_bodies(payload)
    value = decode.decode(payload, bodies) if row["payload"] is not None else None
    assert exact(value) == exact(value_of(row["payload"]) if row["payload"] is not None else None)


@pytest.mark.parametrize("row", INVALID_FRAMES, ids=names(INVALID_FRAMES))
def an_invalid_frame_is_a_fault(row):
    data = bytes.fromhex(row["hex"])
    length, word, _ = frames.unpack_header(data)
    if row["reason"] == "too_long":
        assert length > row["max_frame"]
    elif row["reason"] == "head":
        with pytest.raises(frames.Fault):
            frames.split_bodies(memoryview(data)[frames.HEADER_SIZE :])
    else:
        assert word not in frames.FROM_HOST
        assert {"version": "version", "kind": "unknown kind", "flags": "unknown flags"}[row["reason"]] in frames.explain(word)


def the_header_is_sixteen_bytes():
    assert frames.HEADER.size == frames.HEADER_SIZE == struct.calcsize("<IBBHQ")
