"""A web application that knows nothing of Snakepit: it prints no ready line, and has routes of its own.

`--uds PATH` or `--port PORT` sets where it listens, `--log PATH` where it records each request. `--unready N`: it
answers `/healthz` with 503 that many times before it is ready. `--silent`: it never listens.
"""

import argparse
import gzip
import http.server
import json
import socket
import socketserver
import sys
import threading
import urllib.parse
import zlib

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
TEXT = "aä€😀 "


def bomb():
    """About a megabyte that expands to a quarter of a gigabyte."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    return b"".join(packer.compress(zeros) for _ in range(256)) + packer.flush()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    unready = 0
    log = None

    def address_string(self):
        return "host"

    def log_message(self, format, *args):
        pass

    def send(self, status, body=b"", kind=None, **headers):
        self.send_response(status)
        if kind:
            self.send_header("content-type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def chunks(self, kind, pieces, **headers):
        self.send_response(200)
        self.send_header("content-type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def any_method(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if Handler.log:
            with open(Handler.log, "a") as log:
                print(self.command, self.path, file=log)
        path, _, query = self.path.partition("?")
        name = urllib.parse.unquote(path).strip("/").split("/")[0] or "root"
        answer = getattr(self, "route_" + name, None)
        if answer is None:
            return self.send(404, b'{"detail": "Not Found"}', "application/json")
        return answer(query, body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = any_method

    def route_items(self, query, body):
        said = {
            "method": self.command,
            "path": self.path.partition("?")[0],
            "query": urllib.parse.parse_qsl(query, keep_blank_values=True),
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body.decode("latin-1"),
        }
        self.send(200, json.dumps(said).encode(), "application/json")

    route_root = route_add = route_api = route_items

    def route_gone(self, query, body):
        self.send(204)

    def route_picture(self, query, body):
        self.send(200, PNG, "image/png")

    def route_latin(self, query, body):
        self.send(200, "grün".encode("latin-1"), "text/html; charset=ISO-8859-1")

    def route_empty(self, query, body):
        self.send(200, b"", query)

    def route_gzip(self, query, body):
        self.send(200, gzip.compress(json.dumps(["x"] * 1000).encode()), "application/json", content_encoding="gzip")

    def route_bomb(self, query, body):
        self.send(200, bomb(), query or "application/octet-stream", content_encoding="gzip")

    def route_broken_gzip(self, query, body):
        data = gzip.compress(b"[1, 2, 3]")
        data = data[:-6] if query == "cut=1" else b"[1, 2, 3]"
        self.send(200, data, "application/json", content_encoding="gzip")

    def route_brotli(self, query, body):
        self.send(200, b"x", "application/json", content_encoding="br")

    def route_gzip_error(self, query, body):
        self.send(409, gzip.compress(b'{"detail": "taken already"}'), "application/json", content_encoding="gzip")

    def route_events(self, query, body):
        text = (
            ": hello\n\ndata: plain wörds\n\nevent: tick\nid: 7\ndata: 42\n\ndata: {\"a\": 1}\n\n"
            "data: two\ndata: lines\n\ndata: 12345678901234567890123 things\n\ndata: [DONE]\n\ndata: after\n\n"
        )
        self.chunks("text/event-stream", [text.encode()[at : at + 5] for at in range(0, len(text.encode()), 5)])

    def route_gzip_events(self, query, body):
        data = gzip.compress(b"".join(b"data: %d\n\n" % n for n in range(1000)))
        self.chunks("text/event-stream", [data[at : at + 7] for at in range(0, len(data), 7)], content_encoding="gzip")

    def route_download(self, query, body):
        self.chunks("application/octet-stream", [bytes([n]) * 1000 for n in range(50)])

    def route_words(self, query, body):
        data = TEXT.encode() * 20
        self.chunks("text/plain; charset=utf-8", [data[at : at + 3] for at in range(0, len(data), 3)])

    def route_healthz(self, query, body):
        if Handler.unready > 0:
            Handler.unready -= 1
            return self.send(503, b"warming up", "text/plain")
        return self.send(200, b"ok", "text/plain")


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--uds")
    parser.add_argument("--port", type=int)
    parser.add_argument("--log")
    parser.add_argument("--unready", type=int, default=0)
    parser.add_argument("--silent", action="store_true")
    args = parser.parse_args()
    Handler.log, Handler.unready = args.log, args.unready
    print("Application startup complete.", file=sys.stderr, flush=True)
    if args.silent:
        threading.Event().wait()
    if args.uds:
        Server.address_family = socket.AF_UNIX
        server = Server(args.uds, Handler)
    else:
        server = Server(("127.0.0.1", args.port), Handler)
    server.serve_forever()


main()
