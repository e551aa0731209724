"""The floor of a call: echoes length-prefixed frames over an inherited socket, and does nothing else.

A frame is a length as a little-endian u32, followed by that many bytes. Usage: raw_echo.py FD
"""

import socket
import struct
import sys


def main():
    channel = socket.socket(fileno=int(sys.argv[1]))
    length_at = struct.Struct("<I").unpack_from
    room = bytearray(1 << 16)
    view = memoryview(room)
    have = 0
    while got := channel.recv_into(view[have:] if have else view):
        have += got
        done = end = 0
        while have - done >= 4:
            end = done + 4 + length_at(room, done)[0]
            if end > have:
                break
            done = end
        if done == have:
            channel.sendall(view[:done])
            have = 0
        elif done:
            channel.sendall(view[:done])
            view[: have - done] = view[done:have]
            have -= done
        elif end > len(room):
            larger = bytearray(end)
            larger[:have] = view[:have]
            room, view = larger, memoryview(larger)


main()
