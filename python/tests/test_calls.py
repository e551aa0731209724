"""Calls and their arguments, with a serial and a concurrent worker."""

import array
import fcntl
import os
import random
import socket
import struct
import termios
import threading

import pytest
from harness import CallError, Ended, Worker, until
from snakepit.value.error import BadPayload

SOURCE = """
    import snakepit
    from typing import Dict, List, Optional, Union

    @snakepit.command
    def add(a: int, b: int) -> int:
        return a + b

    @snakepit.command
    def echo(x):
        return x

    @snakepit.command
    def same(value):
        return value

    @snakepit.command
    def half(number: int):
        return number // 2

    @snakepit.command
    def tells(number: int):
        return object() if number == 2 else 1 // (1 - number)

    @snakepit.command(name="other.name")
    def renamed():
        return "renamed"

    @snakepit.command
    def shape(a, /, b, *rest, c, d=4, **more):
        return [a, b, list(rest), c, d, more]

    @snakepit.command
    def pos(a, b=2, /):
        return [a, b]

    @snakepit.command
    def kinds(f: float = 0.0, s: str = "", o: Optional[int] = None, u: Union[int, str] = 0, l: List[int] = [],
              t: tuple = (), z: set = set(), m: Dict[str, int] = {}, y: bytes = b"", b: bool = False,
              anything: "Unknown" = None, n: None = None, text: "Optional[int]" = None):
        return [f, s, o, u, l, sorted(z), type(t).__name__, type(z).__name__, m, y, b, anything, text]

    class Box:
        def method(self, x: int, y=1):
            return x + y

    snakepit.command(Box().method)
    snakepit.command(len)

    @snakepit.command
    def inner_type_error():
        return len(5)

    @snakepit.command
    def looks_like_a_bad_call():
        def f(a): pass
        f()
"""
FUTURE = """
    from __future__ import annotations
    import snakepit, typing
    from typing import Optional

    Alias = typing.Union[int, str]

    @snakepit.command
    def late(a: int, b: int | None = None, c: list[int] | None = None, d: Optional[str] = None, e: Alias = 0,
             f: "str" = "", g: typing.Optional[int] = None, h: Missing = 1):
        return a
"""


@pytest.fixture(scope="module", params=[1, 3], ids=["serial", "concurrent"])
def worker(request):
    with Worker(SOURCE, concurrency=request.param) as running:
        running.ready()
        yield running


def a_call_by_name_and_one_by_position_give_the_same(worker):
    assert worker.call("add", a=1, b=2) == worker.call("add", 1, 2) == 3


def a_value_that_is_neither_map_nor_array_is_one_argument(worker):
    worker.send("CALL", 900, ["echo", "just this", None])
    assert worker.expect("RESULT", 900).value == "just this"
    worker.send("CALL", 901, ["echo", None, None])
    assert worker.expect("RESULT", 901).value is None


def an_option_of_a_newer_host_is_ignored(worker):
    for newer in ({"newer": [1, {"a": None}]}, {"newer": 1, "session": "s", "metadata": {"a": "b"}}):
        number = worker.start("add", 1, 2, options=newer)
        assert worker.expect("RESULT", number).value == 3
    worker.send("CALLS", 902, ["add", [[1, 2], {"a": 3, "b": 4}], None, {"newer": True}])
    assert worker.expect("RESULTS", 902).value == [[True, 3], [True, 7]]


def a_command_can_have_another_name(worker):
    assert worker.call("other.name") == "renamed"


def every_kind_of_parameter_works(worker):
    assert worker.call("shape", a=1, b=2, c=3, e=5) == [1, 2, [], 3, 4, {"e": 5}]
    assert worker.call("pos", a=1) == [1, 2]
    assert worker.call("pos", a=1, b=3) == [1, 3]
    assert worker.call("pos", 5) == [5, 2]
    assert worker.call("method", x=1) == 2
    assert worker.call("len", [1, 2, 3]) == 3


@pytest.mark.parametrize("args, named, parameter, words", [
    ((), {"a": 1}, "b", "needs the argument 'b' (int)"),
    ((1,), {}, "b", "needs the argument 'b'"),
    ((), {"a": 1, "b": 2, "c": 3}, "c", "no argument 'c'; it takes a, b"),
    ((), {"a": 1, "b": "x"}, "b", "'b' must be int, not str"),
    ((1, None), {}, "b", "'b' must be int, not NoneType"),
    ((1, 2.0), {}, "b", "must be int, not float"),
    ((1, 2, 3), {}, None, "takes 2 arguments by position, not 3"),
])
def a_bad_argument_is_named_with_what_was_expected(worker, args, named, parameter, words):
    error = worker.error("add", *args, **named)
    assert error["kind"] == "bad_argument"
    assert words in error["message"]
    assert error.get("parameter") == parameter
    assert "traceback" not in error


@pytest.mark.parametrize("args, named, words", [
    ((), {"a": 1, "b": 1}, "needs the argument 'c'"),
    ((1,), {}, "needs the argument 'b'"),
])
def a_missing_argument_of_any_kind_is_named(worker, args, named, words):
    assert words in worker.error("shape", *args, **named)["message"]


@pytest.mark.parametrize("name, good, bad", [
    ("f", 3, "3"), ("s", "a", b"a"), ("o", None, "1"), ("u", "a", 1.5), ("l", [1], {"a": 1}), ("t", [1], "x"),
    ("z", [1, 2], 5), ("m", {"a": 1}, []), ("y", b"a", "a"), ("b", True, 1), ("n", None, 0), ("text", 4, "4"),
])
def a_simple_annotation_is_checked(worker, name, good, bad):
    worker.call("kinds", **{name: good})
    error = worker.error("kinds", **{name: bad})
    assert (error["kind"], error["parameter"]) == ("bad_argument", name)


def a_list_becomes_the_tuple_or_set_that_is_annotated(worker):
    answer = worker.call("kinds", t=[1, 2], z=[2, 1, 2])
    assert answer[5:8] == [[1, 2], "tuple", "set"]
    error = worker.error("kinds", z=[[1]])
    assert (error["kind"], error["parameter"]) == ("bad_argument", "z")


def an_annotation_that_is_not_simple_is_not_checked(worker):
    assert worker.call("kinds", anything={"x": 1})[11] == {"x": 1}


def an_annotation_that_is_text_is_resolved_where_it_is_simple():
    with Worker(FUTURE) as running:
        running.ready()
        assert running.call("late", a=1, b=None, c=[1], d="x", e="y", f="z", g=1, h=object and []) == 1
        for name, bad in {"a": "x", "b": "x", "c": 5, "d": 5, "e": 1.5, "f": 5, "g": "x"}.items():
            error = running.error("late", **{"a": 1, name: bad})
            assert (error["kind"], error["parameter"]) == ("bad_argument", name), name


def an_unknown_command_names_the_nearest(worker):
    error = worker.error("ecko")
    assert error["kind"] == "unknown_command"
    assert error["nearest"] == ["echo"]
    assert "'ecko'" in error["message"]


def a_type_error_inside_the_command_is_the_commands_own(worker):
    error = worker.error("inner_type_error")
    assert (error["kind"], error["type"]) == ("exception", "TypeError")
    error = worker.error("looks_like_a_bad_call")
    assert (error["kind"], error["type"]) == ("exception", "TypeError")


def a_large_value_goes_there_and_back(worker):
    for size in (4096, (16 << 10) - 1, 16 << 10, 70000, 1 << 20, 5 << 20):
        body = bytes([size % 251]) * size
        assert worker.call("echo", x=body) == body
        assert worker.call("echo", x={"deep": [[body]], "flat": body}) == {"deep": [[body]], "flat": body}
    text = "é" * 300000
    assert worker.call("echo", x=text) == text
    rows = [{"n": i, "name": f"row {i}"} for i in range(20000)]
    assert worker.call("echo", x=rows) == rows


def large_calls_in_a_row_are_answered_among_others_and_in_pieces(worker):
    one, two = b"1" * (1 << 20), b"2" * (1 << 20)
    sent = [one, two, "small", [one, two], "x" * 300000, one, {"a": two, "b": [1, one]}, None, two]
    frames = [worker.frame("CALL", 100 + n, ["echo", {"x": value}, None]) for n, value in enumerate(sent)]
    # One after another, all at once, and in pieces that end in headers, heads and bodies.
    for n, frame in enumerate(frames):
        worker.send_bytes(frame)
        assert worker.expect("RESULT", 100 + n).value == sent[n]
    sender = threading.Thread(target=worker.send_bytes, args=(b"".join(frames),))
    sender.start()
    for n, value in enumerate(sent):
        assert worker.expect("RESULT", 100 + n).value == value
    sender.join()
    for pieces in ((7, 18, 40, 100000), (60000, 1000)):
        for n, frame in enumerate(frames):
            for size in pieces:
                worker.send_bytes(frame[:size])
                until(lambda: not _unread(worker))
                frame = frame[size:]
            worker.send_bytes(frame)
            assert worker.expect("RESULT", 100 + n).value == sent[n]


def _unread(worker):
    """Returns how many bytes the worker has not taken out of its socket, including those that it only peeked at."""
    size = array.array("i", [0])
    fcntl.ioctl(worker.socket, termios.TIOCOUTQ, size)
    return size[0]


def a_frame_that_comes_byte_by_byte_is_put_together(worker):
    worker.next_call += 1
    for byte in worker.frame("CALL", worker.next_call, ["echo", ["slow"], None]):
        worker.send_bytes(bytes((byte,)))
    assert worker.expect("RESULT", worker.next_call).value == "slow"


def the_answers_of_many_calls_come_for_each_of_them(worker):
    first = worker.next_call + 1
    worker.next_call += 500
    worker.send_bytes(b"".join(worker.frame("CALL", first + i, ["echo", [i], None]) for i in range(500)))
    answers = {}
    for _ in range(500):
        frame = worker.expect("RESULT")
        answers[frame.call - first] = frame.value
    assert answers == {i: i for i in range(500)}


def the_calls_of_a_bulk_each_have_their_entry(worker):
    worker.send("CALLS", 7000, ["add", [[1, 2], {"a": 3, "b": 4}, [1], {"a": 1, "b": "x"}], None])
    entries = worker.expect("RESULTS", 7000).value
    assert entries[:2] == [[True, 3], [True, 7]]
    assert [entry[0] for entry in entries[2:]] == [False, False]
    assert [entry[1]["kind"] for entry in entries[2:]] == ["bad_argument", "bad_argument"]
    worker.send("CALLS", 7001, ["nope", [[1]], None])
    assert worker.expect("RESULTS", 7001).value[0][1]["kind"] == "unknown_command"
    big = bytes(20000)
    worker.send("CALLS", 7002, ["echo", [[big], [object.__name__]], None])
    assert worker.expect("RESULTS", 7002).value == [[True, big], [True, "object"]]


def the_inputs_of_a_bulk_may_have_any_shape(worker):
    """The first call of a bulk finds out how the function is called. What follows takes a shorter way where it can."""
    inputs = [1, "x", None, 2.5, True, [3], [[4]], {"value": 5}, {"value": {"a": 1}}, {"other": 6}, [7, 8], {}, -7, 1 << 70,
              "é" * 3000, bytes(3000), {"value": [1, {"b": None}]}]
    single = []
    for value in inputs:
        worker.next_call += 1
        worker.send("CALL", worker.next_call, ["same", value, None])
        frame = worker.receive()
        single.append([frame.kind == "RESULT", frame.value])
    worker.send("CALLS", 7003, ["same", inputs, None])
    assert worker.expect("RESULTS", 7003).value == single
    worker.send("CALLS", 7004, ["half", [2, "x", 5.0, [8], {"number": 10}, None, True], None])
    entries = worker.expect("RESULTS", 7004).value
    assert [entry[1] if entry[0] else entry[1]["kind"] for entry in entries] == [
        1, "bad_argument", "bad_argument", 4, 5, "bad_argument", 0]
    worker.send("CALLS", 7005, ["tells", [0, 1, 2, 0], None])
    entries = worker.expect("RESULTS", 7005).value
    assert [entry[0] for entry in entries] == [True, False, False, True]
    assert (entries[1][1]["type"], entries[2][1]["kind"]) == ("ZeroDivisionError", "bad_value")
    assert 'in tells' in entries[1][1]["traceback"]


def a_payload_that_cannot_be_read_fails_its_call_only(worker):
    worker.send_bytes(bytes.fromhex("02000000 01 03 0000 3930000000000000 91c1".replace(" ", "")))
    frame = worker.expect("ERROR", 12345)
    assert frame.value["kind"] == "bad_payload"
    assert worker.call("add", 1, 2) == 3


def a_result_longer_than_a_frame_is_an_error_of_its_call():
    source = "import snakepit\n@snakepit.command\ndef big(n): return bytes(n)\n@snakepit.command\ndef text(n): return 'x' * n\n"
    with Worker(source, max_frame=100000) as running:
        running.ready()
        assert len(running.call("big", n=99000)) == 99000
        for name in ("big", "text"):
            error = running.error(name, n=200000)
            assert (error["kind"], error["path"]) == ("bad_value", "result")
            assert "max_frame" in error["message"]
        assert running.call("text", n=1) == "x"


BULKY = """
    import os, signal, snakepit

    @snakepit.command
    def text(n):
        if n < 0:
            raise ValueError("y" * -n)
        return "x" * n

    @snakepit.command
    def text_or_death(n):
        if n == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return "x" * n
"""
ASYNC_BULKY = BULKY.replace("def ", "async def ")


def bulk(running, call, lengths, command="text"):
    """Sends a CALLS. Returns the entries of each of its RESULTS."""
    running.send("CALLS", call, [command, [[n] for n in lengths], None])
    parts = []
    while True:
        frame = running.expect("RESULTS", call)
        parts.append(frame.value)
        assert frame.flags in (0, 2), frame.flags
        if frame.flags == 0:
            return parts


@pytest.mark.parametrize(("source", "concurrency"), [(BULKY, 1), (BULKY, 3), (ASYNC_BULKY, 3)])
def the_answers_that_are_too_long_together_come_in_several_frames(source, concurrency):
    with Worker(source, concurrency=concurrency, max_frame=10000) as running:
        running.ready()
        assert bulk(running, 1, [10, 20, 30]) == [[[True, "x" * n] for n in (10, 20, 30)]], "one frame if it can be"
        lengths = [4000, 4000, 4000, 10, 9000, 9000, 3]
        parts = bulk(running, 2, lengths)
        assert [entry for part in parts for entry in part] == [[True, "x" * n] for n in lengths]
        assert len(parts) == 4
        assert bulk(running, 3, []) == [[]]


@pytest.mark.parametrize(("source", "concurrency"), [(BULKY, 1), (BULKY, 3), (ASYNC_BULKY, 3)])
def an_answer_that_is_too_long_by_itself_fails_alone(source, concurrency):
    with Worker(source, concurrency=concurrency, max_frame=10000) as running:
        running.ready()
        # The longest text is surrounded by its own header (3), that of its entry (2), and that of the array (5).
        entries = [entry for part in bulk(running, 1, [5, 9990, 9991, 20000, 6]) for entry in part]
        assert [entry[0] for entry in entries] == [True, True, False, False, True]
        for _, error in entries[2:4]:
            assert (error["kind"], error["path"]) == ("bad_value", "result")
            assert "longer than a frame may be" in error["message"] and "max_frame" in error["message"]


@pytest.mark.parametrize(("source", "concurrency"), [(BULKY, 1), (BULKY, 3), (ASYNC_BULKY, 3)])
def an_error_that_is_too_long_for_a_frame_is_cut(source, concurrency):
    with Worker(source, concurrency=concurrency, max_frame=2000) as running:
        running.ready()
        entries = [entry for part in bulk(running, 1, [1, -30000, 2]) for entry in part]
        assert [entry[0] for entry in entries] == [True, False, True]
        error = entries[1][1]
        assert (error["kind"], error["type"]) == ("exception", "ValueError") and error["message"].startswith("yyy")
        assert running.error("text", n=-30000)["message"].startswith("yyy")
        assert running.call("text", n=1) == "x"


@pytest.mark.parametrize(("source", "concurrency"), [(BULKY, 1), (BULKY, 3), (ASYNC_BULKY, 3)])
def what_was_answered_before_a_death_has_been_sent(source, concurrency):
    with Worker(source, concurrency=concurrency, max_frame=10000, slate=True) as running:
        running.ready()
        running.send("CALLS", 9, ["text_or_death", [[6000], [6001], [6002], [0], [1]], None])
        for n in (6000, 6001):
            frame = running.expect("RESULTS", 9)
            assert (frame.flags, frame.value) == (2, [[True, "x" * n]])
        with pytest.raises(Ended):
            running.receive()
        started = struct.unpack("<QQ", os.pread(running.slate, 16, 0))
        assert started == (9, 4), "the fourth was started, the fifth was not"


def a_deadline_that_is_over_keeps_the_call_from_starting(worker):
    error = worker.error("echo", x=1, deadline=0)
    assert error["kind"] == "deadline"
    assert worker.call("echo", x=1, deadline=60000) == 1


def a_garbled_frame_ends_the_worker_with_a_fault():
    for garbage, words in (
        (b"\xff" * 16, "frame of"),
        (bytes.fromhex("00000000 02 03 0000 0100000000000000".replace(" ", "")), "version 2"),
        (bytes.fromhex("00000000 01 63 0000 0100000000000000".replace(" ", "")), "unknown kind 99"),
        (bytes.fromhex("00000000 01 04 0000 0100000000000000".replace(" ", "")), "only a worker may send"),
        (bytes.fromhex("00000000 01 03 0200 0100000000000000".replace(" ", "")), "unknown flags"),
        (bytes.fromhex("01000000 01 09 0000 0100000000000000 c1".replace(" ", "")), "cannot be read"),
        (bytes.fromhex("01000000 01 03 0000 0100000000000000 05".replace(" ", "")), "not [command"),
    ):
        for concurrency in (1, 2):
            with Worker(SOURCE, concurrency=concurrency) as running:
                running.ready()
                running.send_bytes(garbage)
                fault = running.expect("FAULT")
                assert words in fault.value
                with pytest.raises(Ended):
                    running.receive()
                assert running.wait() == 1


def no_garbage_hangs_a_worker():
    """Sends frames with random damage. Each worker continues to serve, or sends FAULT and exits."""
    rng = random.Random(7)
    ends = {"FAULT": 0, "served": 0, "ended": 0}
    for turn in range(30):
        with Worker(SOURCE, concurrency=1 + turn % 2) as running:
            running.ready()
            whole = [("CALL", ["echo", [1], None]), ("CALLS", ["echo", [[1], [2]], None]), ("PING", {"a": 1}),
                     ("CALL", ["echo", ["x"], 5000, {"stream": [1, 1]}]), ("CREDIT", [5, 5]), ("CANCEL", 1), ("HOST_RESULT", [1, 2])]
            data = bytearray(b"".join(
                running.frame(kind, i, value) for i in range(1, 20) for kind, value in (rng.choice(whole),)))
            for _ in range(rng.randrange(5)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            running.send_bytes(bytes(data) + running.frame("PING", 0, "the end"))
            running.socket.shutdown(socket.SHUT_WR)
            try:
                while True:
                    try:
                        frame = running.receive()
                    except BadPayload:  # a PONG returns the payload of its PING
                        continue
                    if frame.kind == "FAULT" or frame.value == "the end":
                        ends["FAULT" if frame.kind == "FAULT" else "served"] += 1
            except Ended:
                ends["ended"] += 1
            assert running.wait() in (0, 1)
    assert ends["ended"] == 30 and ends["FAULT"] > 3 and ends["served"] > 3, ends


def a_call_error_carries_its_map(worker):
    with pytest.raises(CallError):
        worker.call("nope")
