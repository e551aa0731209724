"""A gRPC server without the SDK's loop, correct or faulty, as other people would write it. Usage: grpc_stranger.py
[HOW]

It uses only the messages of the SDK, which others would compile from spec/snakepit.proto.
"""

import json
import os
import pathlib
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).parents[4] / "python"))
from snakepit.grpc import messages  # noqa: E402

HOW = sys.argv[1] if len(sys.argv) > 1 else "well"
JSON = 1
TWENTY_MILLION = 20_000_000


def note(path, line):
    with open(path, "a") as file:
        file.write(line + "\n")


def value(answer):
    return messages.CallReply(value=messages.Value(data=json.dumps(answer).encode(), encoding=JSON))


def hello(request, context):
    if HOW == "refuses":
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"I do not serve protocol {request.protocol}")
    protocol, encoding = 2 if HOW == "newer" else 1, 7 if HOW == "encoding" else JSON
    features = ["safe-integers"] if HOW == "floats" else []
    return messages.HelloReply(protocol=protocol, encoding=encoding, features=features)


def call(request, context):
    args = json.loads(request.args.data)
    if request.command == "echo":
        return value(args)
    if request.command == "remaining":
        return value(context.time_remaining())
    if request.command == "wait":
        over = threading.Event()
        context.add_callback(lambda: (note(args["path"], "cancelled"), over.set()))
        note(args["path"], "started")
        over.wait()
        return value(None)
    if request.command == "hang":
        note(args["path"], "started")
        time.sleep(600)
    if request.command == "pid":
        return value(os.getpid())
    if request.command == "status":
        context.abort(grpc.StatusCode[args["code"]], "in gRPC's own way")
    if request.command == "stop_serving":
        server.stop(None)
        return value(None)
    if request.command == "telemetry":
        return messages.CallReply(said=TWENTY_MILLION)
    if request.command == "empty":
        return messages.CallReply()
    if request.command == "no_json":
        return messages.CallReply(value=messages.Value(data=b"{", encoding=JSON))
    if request.command == "no_encoding":
        return messages.CallReply(value=messages.Value(data=b"{}", encoding=9))
    context.abort(grpc.StatusCode.NOT_FOUND, f"there is no command {request.command}")


def stream(request, context):
    args = json.loads(request.args.data)
    context.add_callback(lambda: note(args["path"], "over"))
    for number in range(args["n"]):
        if not context.is_active():
            note(args["path"], f"stopped at {number}")
            return
        if number == args.get("fails_at"):
            context.abort(grpc.StatusCode.DATA_LOSS, "no more")
        yield value([number, "x" * args.get("size", 0)])


def serialize(reply):
    if HOW == "garbage":
        return b"\xff\xff\xff"
    if reply.said == TWENTY_MILLION:
        return b"\x1a\x00" * TWENTY_MILLION
    return reply.SerializeToString()


def unary(function, request, serialize):
    return grpc.unary_unary_rpc_method_handler(function, request.FromString, serialize)


server = grpc.server(ThreadPoolExecutor(1 if HOW == "one" else 8))
server.add_generic_rpc_handlers((
    grpc.method_handlers_generic_handler("snakepit.v1.Worker", {
        "Hello": unary(hello, messages.HelloRequest, messages.HelloReply.SerializeToString),
        "Call": unary(call, messages.CallRequest, serialize),
        "Stream": grpc.unary_stream_rpc_method_handler(stream, messages.CallRequest.FromString, serialize),
    } if HOW != "nothing" else {}),
))
address = os.environ["SNAKEPIT_GRPC"]
port = server.add_insecure_port(address)
server.start()
where = {"socket": address[len("unix:"):]} if address.startswith("unix:") else {"port": port}
print(json.dumps({"status": "ready", **where, "pid": os.getpid()}), flush=True)
print(json.dumps({"status": "ready", **where, "pid": 1}), flush=True)
server.wait_for_termination()
# It serves no more, and does not end.
signal.pause()
