"""A bare python3 that writes a byte to an inherited socket and waits for its end. Usage: bare.py FD"""

import socket
import sys

channel = socket.socket(fileno=int(sys.argv[1]))
channel.send(b"r")
channel.recv(1)
