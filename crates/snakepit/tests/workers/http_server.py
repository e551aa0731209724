"""A worker that serves HTTP with only the standard library: `port`, or `socket` with a path.

`own_socket`: the socket that the host offers. `v6`: a port of the other loopback. `forked`: a child serves. `announces`
with a port: it announces that port and listens nowhere. `port` with a path: only the first worker that is started with
this path serves. `deaf`: a port, and SIGTERM is ignored. `notes` with a path: a port, and each SIGTERM leaves a line in
that file and is ignored otherwise.
"""

import http.server
import json
import os
import signal
import socket
import socketserver
import sys
import threading
import time

# Removed, so that processes started by this worker do not have it.
SECRET = os.environ.pop("SNAKEPIT_SECRET")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "host"

    def log_message(self, format, *args):
        pass

    def send(self, status, body, kind="application/json"):
        data = body if isinstance(body, bytes) else body.encode() if kind != "application/json" else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def chunks(self, kind, pieces):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            data = piece.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def do_POST(self):
        length = int(self.headers["content-length"])
        args = json.loads(self.rfile.read(length))
        if self.headers["snakepit-secret"] != SECRET:
            return self.send(403, {"detail": "wrong secret"})
        command = getattr(self, "command_" + self.path.strip("/").split("/")[-1], None)
        if command is None:
            return self.send(404, {"detail": "Not Found"})
        return command(args)

    do_PUT = do_POST

    def command_echo(self, args):
        self.send(200, args)

    def command_request(self, args):
        self.send(200, {"path": self.path, "method": self.command, "headers": {k.lower(): v for k, v in self.headers.items()}})

    def command_pid(self, args):
        self.send(200, os.getpid())

    def command_port(self, args):
        self.send(200, self.server.server_address[1])

    def command_connection(self, args):
        self.send(200, id(self.connection))

    def command_text(self, args):
        self.send(200, "plain wörds", "text/plain; charset=utf-8")

    def command_bytes(self, args):
        self.send(200, bytes(range(256)), "application/octet-stream")

    def command_picture(self, args):
        self.send(200, b"x", "image/png")

    def command_nothing(self, args):
        self.send_response(204)
        self.end_headers()

    def command_moved(self, args):
        self.send(302, "")

    def command_raise(self, args):
        self.send(500, {"error": {"type": "ValueError", "message": args["message"], "traceback": "line 1"}})

    def command_invalid(self, args):
        self.send(422, {"detail": [{"loc": ["body", "a"], "msg": "Field required", "type": "missing"}]})

    def command_garbage(self, args):
        self.send(200, b'{"a": NaN', "application/json")

    def command_long_error(self, args):
        self.send_response(500)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(args["size"]))
        self.end_headers()
        self.wfile.write(b"[")
        for _ in range(args["size"] // 65536):
            self.wfile.write(b"1," * 32768)
        self.close_connection = True

    def command_environment(self, args):
        self.send(200, sorted(key for key in os.environ if key.startswith("SNAKEPIT_")))

    def command_large(self, args):
        self.send(200, b'"' + b"x" * args["size"] + b'"', "application/json")

    def command_events(self, args):
        self.chunks("text/event-stream", (f"data: {json.dumps([n, 'x' * args.get('size', 0)])}\n\n" for n in self.noted(args)))

    def command_lines(self, args):
        self.chunks("application/x-ndjson", (json.dumps([n, ""]) + "\n" for n in self.noted(args)))

    def command_failing_events(self, args):
        self.chunks("text/event-stream", ["data: 1\n\n", 'event: error\ndata: {"type": "Broken", "message": "no more"}\n\n'])

    def noted(self, args):
        for n in range(args["n"]):
            if "path" in args:
                with open(args["path"], "w") as file:
                    file.write(str(n))
            yield n

    def command_break(self, args):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b"[1")
        self.wfile.flush()
        self.close_connection = True

    def command_raw(self, args):
        # Each of the `pieces` is sent separately, as latin-1.
        for piece in args["pieces"]:
            self.wfile.write(piece.encode("latin-1"))
            self.wfile.flush()
        self.close_connection = args.get("close", False)
        if args.get("hold"):
            self.connection.recv(1)

    def command_hang(self, args):
        # Until the other side closes the request.
        with open(args["path"], "a") as file:
            file.write("begun\n")
        self.connection.recv(1)
        with open(args["path"], "a") as file:
            file.write("closed\n")

    def command_crash(self, args):
        print("about to crash", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 11)

    def command_panic(self, args):
        print("panic: runtime error: index out of range [5]", file=sys.stderr)
        for number in range(500):
            print(f"goroutine {number} [running]:", file=sys.stderr)
        sys.stderr.flush()
        os._exit(2)

    def command_deafen(self, args):
        self.send(200, "deaf")
        self.close_connection = True
        threading.Thread(target=self.deafen).start()

    def deafen(self):
        self.server.shutdown()
        self.server.server_close()
        time.sleep(1000)


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True


def main():
    ready = {"status": "ready", "pid": os.getpid(), "commands": ["echo"]}
    if sys.argv[1] == "port" and len(sys.argv) > 2:
        # The first worker that creates this file serves; the others do not start.
        open(sys.argv[2], "x").close()
    if sys.argv[1] == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.argv[1] == "notes":
        signal.signal(signal.SIGTERM, lambda *_: print("term", file=open(sys.argv[2], "a"), flush=True))
    if sys.argv[1] in ("socket", "own_socket"):
        path = sys.argv[2] if sys.argv[1] == "socket" else os.environ["SNAKEPIT_SOCKET"]
        Server.address_family = socket.AF_UNIX
        server = Server(path, Handler)
        ready["socket"] = path
    elif sys.argv[1] == "announces":
        print(json.dumps({**ready, "port": int(sys.argv[2])}), flush=True)
        threading.Event().wait()
    elif sys.argv[1] == "v6":
        Server.address_family = socket.AF_INET6
        server = Server(("::1", 0), Handler)
        ready["port"] = server.server_address[1]
    elif sys.argv[1] == "forked":
        server = Server(("127.0.0.1", 0), Handler)
        ready["port"] = server.server_address[1]
        if os.fork():
            server.server_close()
            threading.Event().wait()
        ready["pid"] = os.getpid()
    else:
        server = Server(("127.0.0.1", 0), Handler)
        ready["port"] = server.server_address[1]
    print(json.dumps(ready), flush=True)
    server.serve_forever()
    threading.Event().wait()


main()
