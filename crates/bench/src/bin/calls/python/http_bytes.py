"""A worker over HTTP that echoes bytes, with only the standard library: one thread, and connections that it keeps.

It parses no more of a request than an echo needs, so that the numbers are those of the host and of HTTP.
"""

import json
import os
import select
import socket

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"

room = bytearray(1 << 16)
view = memoryview(room)


def read_request(connection):
    """Returns the body of the next request, or None if the connection was closed."""
    have = connection.recv_into(view)
    while (end := room.find(b"\r\n\r\n", 0, have)) < 0:
        got = connection.recv_into(view[have:]) if have else 0
        if not got:
            return None
        have += got
    at = room.find(b"content-length: ", 0, end) + 16
    length = int(room[at : room.find(b"\r", at)])
    body = bytearray(length)
    have -= end + 4
    body[:have] = view[end + 4 : end + 4 + have]
    rest = memoryview(body)[have:]
    while rest and (got := connection.recv_into(rest)):
        rest = rest[got:]
    return None if rest else body


def echo(connection):
    """Answers a request. Returns whether the connection remains."""
    body = read_request(connection)
    if body is None:
        return False
    head = HEAD % len(body)
    sent = connection.sendmsg([head, body])
    if sent < len(head) + len(body):
        connection.sendall(memoryview(body)[sent - len(head) :])
    return True


def main():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.environ["SNAKEPIT_SOCKET"])
    listener.listen(128)
    ready = {"status": "ready", "socket": listener.getsockname(), "pid": os.getpid(), "commands": ["echo"]}
    print(json.dumps(ready), flush=True)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    connections = {}
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                connection, _ = listener.accept()
                connections[connection.fileno()] = connection
                poll.register(connection, select.EPOLLIN)
            elif not echo(connections[fd]):
                connections.pop(fd).close()


main()
