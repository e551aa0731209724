"""A worker without the SDK that starts fast and behaves: `work(key, ms)` records the key, takes its time, and
returns the key."""

import os
import select
import socket
import struct
import sys
import time

READY, CALL, RESULT, ERROR, CANCEL, DRAIN, BYE = 2, 3, 4, 5, 9, 22, 23

sock = socket.socket(fileno=int(os.environ["SNAKEPIT_FD"]))
slate = int(os.environ["SNAKEPIT_SLATE_FD"])
marks = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
received = b""
waiting, cancelled, draining = [], set(), False


def text(string):
    raw = string.encode()
    return bytes([0xD9, len(raw)]) + raw


def send(kind, call=0, payload=b""):
    sock.sendall(struct.pack("<IBBHQ", len(payload), 1, kind, 0, call) + payload)


def value(raw, at):
    """Returns a small MessagePack value, and where the next one begins."""
    kind = raw[at]
    if kind < 0x80:
        return kind, at + 1
    if kind in (0xCC, 0xCD, 0xCE, 0xCF):
        size = 1 << (kind - 0xCC)
        return int.from_bytes(raw[at + 1 : at + 1 + size], "big"), at + 1 + size
    if 0xA0 <= kind <= 0xBF or kind == 0xD9:
        size, at = (kind - 0xA0, at + 1) if kind != 0xD9 else (raw[at + 1], at + 2)
        return raw[at : at + size].decode(), at + size
    if 0x80 <= kind <= 0x9F:
        # The keys and values of a map alternate.
        count, items, at = (kind & 0x0F) * (2 if kind < 0x90 else 1), [], at + 1
        for _ in range(count):
            item, at = value(raw, at)
            items.append(item)
        return items, at
    return None, at + 1


def read(patience):
    """Reads what the host has sent, and waits up to this time for it."""
    global received, draining
    if not select.select([sock], [], [], patience)[0]:
        return
    more = sock.recv(65536)
    if not more:
        os._exit(0)
    received += more
    while len(received) >= 16:
        length, _, kind, _, call = struct.unpack_from("<IBBHQ", received)
        if len(received) < 16 + length:
            return
        payload, received = received[16 : 16 + length], received[16 + length :]
        if kind == CALL:
            waiting.append((call, payload))
        elif kind == CANCEL:
            cancelled.add(call)
        elif kind == DRAIN:
            draining = True


def work(call, key, ms):
    os.write(marks, key.encode() + b"\n")
    end = time.monotonic() + ms / 1000
    while call not in cancelled:
        left = end - time.monotonic()
        if left <= 0:
            return send(RESULT, call, text(key))
        read(left)
    send(ERROR, call, b"\x82" + text("kind") + text("cancelled") + text("message") + text("as you wish"))


def main():
    read(None)
    message = b"\x85" + text("protocol") + b"\x01" + text("pid") + b"\xce" + struct.pack(">I", os.getpid())
    message += text("commands") + b"\x91" + text("work") + text("language") + text("quick")
    send(READY, 0, message + text("features") + b"\x91" + text("slate"))
    while waiting or not draining:
        if not waiting:
            read(None)
            continue
        call, payload = waiting.pop(0)
        command, args = value(payload, 0)[0][:2]
        os.pwrite(slate, struct.pack("<QQ", call, 0), 0)
        if command == "work":
            work(call, *args)
        else:
            send(RESULT, call, b"\xc0")
    send(BYE)


main()
