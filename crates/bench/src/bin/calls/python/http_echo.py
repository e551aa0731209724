"""A worker over HTTP that echoes, with only the standard library."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes, and the second must not wait for the first.
    disable_nagle_algorithm = True

    def log_message(self, *words):
        pass

    def do_POST(self):
        args = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(args["data"]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    # The number of simultaneous connects. By default, the server would refuse the sixth.
    request_queue_size = 128


server = Server(("127.0.0.1", 0), Echo)
ready = {"status": "ready", "port": server.server_address[1], "pid": os.getpid(), "commands": ["echo"]}
print(json.dumps(ready), flush=True)
server.serve_forever()
