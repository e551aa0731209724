"""A worker without the SDK that violates spec/wire.md in the way that its argument names."""

import os
import signal
import socket
import struct
import subprocess
import sys

ITEMS = 27
READY, CALL, RESULT, ERROR, ITEM, END, CREDIT, HOST_CALL, HOST_CREDIT, HOST_CANCEL = 2, 3, 4, 5, 6, 7, 8, 10, 15, 16
LOG, PROGRESS, DRAIN, BYE, CALLS, RESULTS, FAULT = 17, 18, 22, 23, 24, 25, 26
MORE = 2

sock = socket.socket(fileno=int(os.environ["SNAKEPIT_FD"]))
received = b""


def frame(kind, call=0, payload=b"", version=1, flags=0, length=None):
    length = len(payload) if length is None else length
    return struct.pack("<IBBHQ", length, version, kind, flags, call) + payload


def send(*frames):
    sock.sendall(b"".join(frames))


def read():
    """Returns the next frame of the host: kind, call, payload. Ends the process when the socket ends."""
    global received
    while True:
        if len(received) >= 16:
            length, _, kind, _, call = struct.unpack_from("<IBBHQ", received)
            if len(received) >= 16 + length:
                payload, received = received[16 : 16 + length], received[16 + length :]
                return kind, call, payload
        more = sock.recv(65536)
        if not more:
            os._exit(0)
        received += more


def text(string):
    raw = string.encode()
    return bytes([0xD9, len(raw)]) + raw


def ready(features=()):
    """Returns the introduction of a worker with one command, `any`."""
    message = b"\x85" + text("protocol") + b"\x01" + text("pid") + b"\xce" + struct.pack(">I", os.getpid())
    message += text("commands") + b"\x91" + text("any") + text("language") + text("raw")
    message += text("features") + bytes([0x90 + len(features)]) + b"".join(map(text, features))
    return frame(READY, 0, message)


def call():
    """Returns the next call. Skips other frames, and obeys DRAIN."""
    while True:
        kind, number, payload = read()
        if kind == DRAIN:
            send(frame(BYE))
            os._exit(0)
        if kind in (CALL, CALLS):
            return number, payload


def forever():
    while True:
        signal.pause()


def serve():
    """Behaves correctly from here on."""
    while True:
        number, _ = call()
        send(frame(RESULT, number, text("ok")))


def never_ready():
    print("loading a very large model", file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    forever()


def exits_at_once():
    sys.exit(0)


def dies_in_start():
    print("no memory for this", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def garbage_at_once():
    sock.sendall(b"Traceback (most recent call last):\n")
    forever()


def another_protocol():
    send(frame(READY, 0, b"\x81" + text("protocol") + b"\x02"))
    forever()


def ready_twice():
    send(ready(), ready())
    forever()


def ready_twice_later():
    send(ready())
    call()
    send(ready())
    forever()


def results(call, numbers, flags=0):
    """Returns a RESULTS with good entries, which are small numbers."""
    entries = b"".join(b"\x92\xc3" + bytes([number]) for number in numbers)
    return frame(RESULTS, call, bytes([0x90 + len(numbers)]) + entries, flags=flags)


def ask(call, number, tool, args=b"\x80", options=b""):
    """Returns a HOST_CALL."""
    payload = b"\xce" + struct.pack(">I", number) + text(tool) + args + options
    return frame(HOST_CALL, call, (b"\x94" if options else b"\x93") + payload)


# The answer of each mode to its first call, given the call's number. Afterwards the worker lives on, if the host lets
# it.
ANSWERS = {
    "garbage": lambda n: b"HTTP/1.1 500 Internal Server Error\r\n\r\n",
    "zeros": lambda n: bytes(64),
    "empty_frame": lambda n: frame(RESULT, n),
    "oversized": lambda n: frame(RESULT, n, b"", length=0xFFFFFFFF),
    "another_version": lambda n: frame(RESULT, n, text("ok"), version=9),
    "unknown_kind": lambda n: frame(99, n, text("ok")),
    "unknown_flags": lambda n: frame(RESULT, n, text("ok"), flags=0x80),
    "host_frame": lambda n: frame(CALL, n, text("ok")),
    "unreadable_value": lambda n: frame(RESULT, n, b"\xc1"),
    "two_values": lambda n: frame(RESULT, n, text("ok") * 2),
    "deep_value": lambda n: frame(RESULT, n, b"\x91" * 100_000 + b"\xc0"),
    "long_list_claimed": lambda n: frame(RESULT, n, b"\xdd\xff\xff\xff\xff"),
    "body_outside": lambda n: frame(RESULT, n, struct.pack("<I", 10) + b"\xd7\x05" + struct.pack("<II", 9, 9), flags=1),
    "error_of_nobody": lambda n: frame(ERROR, 0, b"\x80"),
    "unreadable_error": lambda n: frame(ERROR, n, b"\x93\x01\x02\x03"),
    "unreadable_tool_call": lambda n: frame(HOST_CALL, n, b"\xc0"),
    "results_of_one": lambda n: frame(RESULTS, n, b"\x91\x92\xc3\x01"),
    "result_of_many": lambda n: frame(RESULT, n, text("ok")),
    "end_of_many": lambda n: frame(END, n),
    "results_that_are_no_list": lambda n: frame(RESULTS, n, text("ok")),
    "too_many_results": lambda n: results(n, [1] * 4),
    "too_many_results_in_parts": lambda n: results(n, [1, 2], MORE) + results(n, [3, 4]),
    "endless_results": lambda n: results(n, [1, 2], MORE) + results(n, [3, 4], MORE),
    "more_of_nothing": lambda n: results(n, [1], MORE) + results(n, [], MORE),
    "unreadable_part": lambda n: frame(RESULTS, n, b"\x91\x92\xc3\xc1", flags=MORE) + results(n, [2, 3]),
    "few_results_in_parts": lambda n: results(n, [1], MORE) + results(n, [2]),
    "error_after_some": lambda n: results(n, [1], MORE) + frame(ERROR, n, b"\x82" + text("kind") + text("exception")
                                                               + text("message") + text("no more")),
    "silence_after_some": lambda n: results(n, [1, 2], MORE),
    "tool_id_twice": lambda n: ask(n, 7, "slow") + ask(n, 8, "slow") + ask(n, 7, "quick"),
    "bytes_beyond_credit": lambda n: frame(ITEM, n, b"\xc6" + struct.pack(">I", 1 << 20) + bytes(1 << 20)) * 100,
    "items_beyond_credit": lambda n: b"".join(frame(ITEM, n, b"\x01") for _ in range(100)),
    "shared_items": lambda n: frame(ITEMS, n, b"\x93\x01\x02\x03") + frame(ITEM, n, b"\x04") + frame(END, n),
    "shared_items_beyond_credit": lambda n: frame(ITEMS, n, b"\x95\x01\x02\x03\x04\x05"),
    "no_shared_item": lambda n: frame(ITEMS, n, b"\x90"),
    "shared_items_cut_short": lambda n: frame(ITEMS, n, b"\x92\x01\xcd\x02"),
}


def nils(count):
    """Returns a list that takes one byte per entry on the wire, and much more in memory."""
    return b"\xdd" + struct.pack(">I", count) + b"\xc0" * count


def integers(bytes_in_all):
    """Returns integers of 4 KiB, whose decimal digits take long to compute."""
    one = b"\xc8" + struct.pack(">H", 4096) + b"\x01" + b"\x5a" * 4096
    count = bytes_in_all // len(one)
    return b"\xdd" + struct.pack(">I", count) + one * count


def body_named_often(times, size):
    """Returns a list that refers to the same byte string again and again."""
    head = b"\xdd" + struct.pack(">I", times) + (b"\xd7\x05" + struct.pack("<II", 0, size)) * times
    return struct.pack("<I", len(head)) + head + bytes(size)


# Frames that are short on the wire and cost much memory or time. A good answer follows each.
COSTLY = {
    "log_of_nils": lambda n: frame(LOG, n, b"\x93" + text("info") + text("nils") + nils(20 << 20)),
    "log_of_integers": lambda n: frame(LOG, n, b"\x93" + text("info") + text("digits") + integers(64 << 20)),
    "log_of_a_long_text": lambda n: frame(LOG, n, b"\x93" + text("info") + b"\xdb" + struct.pack(">I", 20 << 20)
                                          + b"a\n" * (10 << 20) + b"\x80"),
    "progress_of_a_long_text": lambda n: frame(PROGRESS, n, b"\x92\xc0\xdb" + struct.pack(">I", 20 << 20)
                                               + b"x" * (20 << 20)),
    "fault_of_a_long_text": lambda n: frame(FAULT, 0, b"\xdb" + struct.pack(">I", 20 << 20) + b"x" * (20 << 20)),
    "result_of_nils": lambda n: frame(RESULT, n, nils(20 << 20)),
    "result_of_a_body": lambda n: frame(RESULT, n, body_named_often(300, 1 << 20), flags=1),
    "result_of_a_short_body": lambda n: frame(RESULT, n, body_named_often(1 << 20, 4000), flags=1),
    "error_of_notes": lambda n: frame(ERROR, n, b"\x82" + text("kind") + text("x") + text("notes") + b"\xdd"
                                      + struct.pack(">I", 20 << 20) + b"\xa0" * (20 << 20)),
}


def ready_of_nils():
    send(frame(READY, 0, b"\x82" + text("protocol") + b"\x01" + text("more") + nils(20 << 20)))
    forever()


def answers_unread():
    """Answers calls by guessing their numbers, and reads nothing."""
    send(ready())
    first = call()[0]
    # The host drops what it does not know, so all answers are repeated again and again.
    answers = [frame(RESULT, number, text("ok")) for number in range(first, first + 500)]
    try:
        while True:
            send(*answers)
    except OSError:
        forever()


def half_then_ends():
    send(ready())
    number, _ = call()
    sock.sendall(frame(RESULT, number, text("a long answer"))[:-5])
    os._exit(3)


def half_then_waits():
    send(ready())
    number, _ = call()
    sock.sendall(frame(RESULT, number, text("a long answer"))[:-5])
    forever()


def unknown_call():
    send(ready())
    while True:
        number, _ = call()
        send(frame(RESULT, number + 1000, text("no")), frame(RESULT, number, text("ok")))


def twice():
    send(ready())
    while True:
        number, _ = call()
        send(frame(RESULT, number, text("ok")), frame(RESULT, number, text("no")), frame(END, number))


def reversed_order():
    send(ready())
    while True:
        numbers = sorted(call()[0] for _ in range(4))
        send(*(frame(RESULT, number, text(str(index))) for index, number in reversed(list(enumerate(numbers)))))


def closes_and_lives():
    send(ready())
    call()
    sock.close()
    forever()


def ignores_everything():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    send(ready())
    while True:
        read()


def deaf():
    """Becomes ready, and never reads again."""
    send(ready())
    forever()


def family():
    """Starts processes in sessions of their own, then dies."""
    send(ready())
    number, _ = call()
    sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
    pids = [subprocess.Popen(sleeper, start_new_session=True).pid for _ in range(3)]
    print(*pids, flush=True)
    send(frame(LOG, number, b"\x93" + text("info") + text(" ".join(map(str, pids))) + b"\x80"))
    call()
    os._exit(1)


def poison():
    """Claims to keep the slate, but dies of every call without having recorded it."""
    send(ready(["slate"]))
    call()
    os.kill(os.getpid(), signal.SIGKILL)


def breaks_and_goes_on():
    """Violates the protocol after some calls, and goes on as if nothing had happened. Records each call that it
    begins."""
    marks = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    send(ready())
    begun = 0
    while True:
        number, _ = call()
        os.write(marks, f"{number}\n".encode())
        begun += 1
        send(frame(RESULT, number, text("ok")) + (bytes(64) if begun == 10 else b""))


def uninvited_items():
    """Streams its answers, whether or not the caller takes a stream."""
    send(ready())
    while True:
        number, _ = call()
        send(frame(ITEM, number, text("ok")) * 2 + frame(END, number))


def few_results():
    send(ready())
    while True:
        kind, number, _ = read()
        if kind == DRAIN:
            send(frame(BYE))
            os._exit(0)
        if kind == CALLS:
            send(frame(RESULTS, number, b"\x91\x92\xc3\x01"))
        elif kind == CALL:
            send(frame(RESULT, number, b"\x01"))


def slate(call, started):
    os.pwrite(int(os.environ["SNAKEPIT_SLATE_FD"]), struct.pack("<QQ", call, started), 0)


def dies_after_some():
    """Starts two, answers the first of them, and dies."""
    send(ready(["slate"]))
    number, _ = call()
    slate(number, 2)
    send(results(number, [1], MORE))
    os.kill(os.getpid(), signal.SIGKILL)


def dies_after_all_that_it_started():
    send(ready(["slate"]))
    number, _ = call()
    slate(number, 1)
    send(results(number, [1], MORE))
    os.kill(os.getpid(), signal.SIGKILL)


def dies_after_some_unsaid():
    """Answers a call that, according to the slate, was never started."""
    send(ready(["slate"]))
    number, _ = call()
    send(results(number, [1], MORE))
    os.kill(os.getpid(), signal.SIGKILL)


def says_bye_early():
    send(ready(), frame(BYE))
    sock.close()
    forever()


def tool_flood():
    """Calls a tool ten thousand times, and reads no answer."""
    send(ready())
    number, _ = call()
    for index in range(10_000):
        send(frame(HOST_CALL, number, b"\x93\xcd" + struct.pack(">H", index) + text("slow") + b"\x80"))
    send(frame(RESULT, number, text("ok")))
    serve()


def endless_tool_flood():
    """Calls a tool without end, and reads nothing."""
    send(ready())
    number, _ = call()
    index = 0
    while True:
        send(*(ask(number, index + more, "slow") for more in range(1000)))
        index += 1000


def asks_for_too_much():
    """Answers with the host's reply to one tool call too many, and to the next one, after it has given up another
    one."""
    send(ready())
    number, _ = call()
    send(*(ask(number, index, "slow") for index in range(1025)))
    refused = read()[2]
    send(frame(HOST_CANCEL, number, b"\x91\x00"), ask(number, 5000, "quick"))
    send(frame(RESULT, number, b"\x92" + refused + read()[2]))
    serve()


def asks_with_too_many_bytes():
    """Sends seventeen arguments of nearly a MiB each, and answers with the host's reply to the last."""
    send(ready())
    number, _ = call()
    size = (1 << 20) - 100
    args = b"\xc6" + struct.pack(">I", size) + bytes(size)
    for index in range(17):
        send(ask(number, index, "slow", args))
    send(frame(RESULT, number, read()[2]))
    serve()


def uses_an_id_again():
    """Uses the same id for one tool call after another: once answered or cancelled, it is free."""
    send(ready())
    number, _ = call()
    for _ in range(2000):
        send(ask(number, 1, "quick"))
        answer = read()[2]
    for _ in range(2000):
        send(ask(number, 1, "slow"), frame(HOST_CANCEL, number, b"\x91\x01"))
    send(ask(number, 1, "quick"))
    send(frame(RESULT, number, b"\x92" + answer + read()[2]))
    serve()


def deaf_to_a_stream():
    """Takes a stream with the highest possible credit, grants it again, and reads nothing of it."""
    send(ready())
    number, _ = call()
    credit = b"\xce" + struct.pack(">I", 0xFFFFFFFF) + b"\xcf" + struct.pack(">Q", 0xFFFFFFFFFFFFFFFF)
    send(ask(number, 1, "endless", options=b"\x81" + text("stream") + b"\x92" + credit))
    send(frame(HOST_CREDIT, number, b"\x93\x01" + credit))
    forever()


def deaf_to_tools():
    """Requests as much as it may, and reads nothing of it."""
    send(ready())
    number, _ = call()
    send(*(ask(number, index, "large") for index in range(1024)))
    forever()


def main(mode):
    assert read()[0] == 1, "HELLO comes first"
    if mode in ANSWERS:
        send(ready())
        send(ANSWERS[mode](call()[0]))
        forever()
    if mode in COSTLY:
        send(ready())
        number, _ = call()
        send(COSTLY[mode](number), frame(RESULT, number, text("ok")))
        serve()
    globals()[mode]()


main(sys.argv[1])
