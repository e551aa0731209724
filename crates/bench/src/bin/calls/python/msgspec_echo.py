"""The floor of throughput: [command, args] in, a value out, with msgspec and as many frames as possible per read and write.

A frame is a length as a little-endian u32, followed by that many bytes of MessagePack. "echo" returns its argument, "count"
returns one frame for each number below n. Usage: msgspec_echo.py FD
"""

import socket
import struct
import sys

import msgspec

BATCH = 256


def main():
    channel = socket.socket(fileno=int(sys.argv[1]))
    prefix = struct.Struct("<I")
    pack, length_at = prefix.pack, prefix.unpack_from
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode

    def echo(data):
        return data

    def count(n):
        for first in range(0, n, BATCH):
            out = bytearray()
            for number in range(first, min(first + BATCH, n)):
                item = encode(number)
                out += pack(len(item))
                out += item
            channel.sendall(out)

    commands = {"echo": echo}
    room = bytearray(1 << 18)
    view = memoryview(room)
    have = 0
    while got := channel.recv_into(view[have:] if have else view):
        have += got
        done = end = 0
        out = bytearray()
        while have - done >= 4:
            start = done + 4
            end = start + length_at(room, done)[0]
            if end > have:
                break
            command, args = decode(view[start:end])
            if command == "count":
                count(**args)
            else:
                answer = encode(commands[command](**args))
                out += pack(len(answer))
                out += answer
            done = end
        if out:
            channel.sendall(out)
        if done:
            if done < have:
                view[: have - done] = view[done:have]
            have -= done
        elif end > len(room):
            larger = bytearray(end)
            larger[:have] = view[:have]
            room, view = larger, memoryview(larger)


main()
