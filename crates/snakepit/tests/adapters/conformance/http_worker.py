"""The worker of docs/adapters-contract.md over HTTP, without the SDK, with only the standard library."""

import json
import os
import select
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import plain

SECRET = os.environ.get("SNAKEPIT_SECRET", "")


def print_it(call, text):
    print(text, flush=True)
    print(text, file=sys.stderr, flush=True)
    return "printed"


def garbage(call):
    call.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: nonsense\r\n\xff\xff\r\n\r\n")
    while not call.cancelled():
        time.sleep(0.01)


COMMANDS = {**plain.COMMANDS, "print": print_it, "garbage": garbage}


class Call(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is a few small writes, which must not wait for one another.
    disable_nagle_algorithm = True

    def log_message(self, *words):
        pass

    def cancelled(self):
        """Reports whether the host has closed the request."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def stream(self, items):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for item in items:
                self.chunk(b"data: %s\n\n" % json.dumps(item).encode())
        except (plain.Cancelled, OSError):
            self.close_connection = True
            return
        except Exception as error:
            self.chunk(b"event: error\ndata: %s\n\n" % json.dumps({"error": plain.told(error)}).encode())
        finally:
            items.close()
        self.wfile.write(b"0\r\n\r\n")

    def do_POST(self):
        args = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("snakepit-secret") != SECRET:
            return self.answer(403, {"detail": "the secret is missing or wrong"})
        left = self.headers.get("snakepit-timeout-ms")
        self.remaining_ms = int(left) if left else None
        self.session = self.headers.get("snakepit-session")
        prefix = "snakepit-metadata-"
        # They are sent as UTF-8, and this server reads them as Latin-1.
        named = [(key.lower(), value.encode("latin-1").decode()) for key, value in self.headers.items()]
        self.metadata = {key[len(prefix):]: value for key, value in named if key.startswith(prefix)}
        function = COMMANDS.get(self.path.lstrip("/"))
        if function is None:
            return self.answer(404, {"error": plain.unknown(self.path.lstrip("/"))})
        try:
            if plain.is_stream(function):
                return self.stream(function(self, **args))
            self.answer(200, function(self, **args))
        except OSError:
            self.close_connection = True
        except Exception as error:
            self.answer(500, {"error": plain.told(error)})


class Server(ThreadingHTTPServer):
    request_queue_size = 128


def main():
    plain.begin()
    server = Server(("127.0.0.1", 0), Call)
    ready = {"status": "ready", "port": server.server_address[1], "pid": os.getpid(), "commands": list(COMMANDS)}
    print(json.dumps(ready), flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Event().wait()


main()
