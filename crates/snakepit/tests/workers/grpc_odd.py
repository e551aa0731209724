"""Announces that it is ready, but is not a gRPC server. Usage: grpc_odd.py garbage|closes|http"""

import json
import os
import socket
import sys

path = os.environ["SNAKEPIT_GRPC"][len("unix:"):]
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
print(json.dumps({"status": "ready", "socket": path, "pid": os.getpid()}), flush=True)
while True:
    connection, _ = server.accept()
    if sys.argv[1] == "garbage":
        connection.sendall(os.urandom(4096))
    elif sys.argv[1] == "http":
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    if sys.argv[1] == "closes":
        connection.close()
