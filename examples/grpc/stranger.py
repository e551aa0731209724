"""A worker without the SDK: grpcio, protobuf, and `spec/snakepit.proto`.

It serves Hello and Call, and the health service of gRPC. Arguments and answers are JSON.
"""

import hmac
import json
import os
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Most projects generate this part from the .proto. Written by hand, it needs no tool.
pool = descriptor_pool.DescriptorPool()
file = descriptor_pb2.FileDescriptorProto(name="stranger.proto", package="snakepit.v1", syntax="proto3")
FIELD = descriptor_pb2.FieldDescriptorProto


def message(name, *fields):
    made = file.message_type.add(name=name)
    for field, kind, number in fields:
        repeated = field.endswith("s") and kind == "string" and field != "args"
        added = made.field.add(name=field, number=number, label=FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL)
        if kind[0].isupper():
            added.type, added.type_name = FIELD.TYPE_MESSAGE, f".snakepit.v1.{kind}"
        else:
            added.type = FIELD.Type.Value(f"TYPE_{kind.upper()}")


message("HelloRequest", ("protocol", "uint32", 1))
message("HelloReply", ("protocol", "uint32", 1), ("language", "string", 3), ("commands", "string", 4), ("encoding", "int32", 6))
message("Value", ("data", "bytes", 1), ("encoding", "int32", 2))
message("CallRequest", ("call", "uint64", 1), ("command", "string", 2), ("args", "Value", 3))
message("Error", ("kind", "string", 1), ("type", "string", 2), ("message", "string", 3))
message("CallReply", ("value", "Value", 1), ("error", "Error", 2))
message("Health", ("status", "int32", 1))
pool.AddSerializedFile(file.SerializeToString())
HelloRequest, HelloReply, Value, CallRequest, Error, CallReply, Health = (
    message_factory.GetMessageClass(pool.FindMessageTypeByName(f"snakepit.v1.{name}"))
    for name in ("HelloRequest", "HelloReply", "Value", "CallRequest", "Error", "CallReply", "Health")
)
JSON = 1
ADDRESS = os.environ["SNAKEPIT_GRPC"]
SECRET = os.environ["SNAKEPIT_SECRET"]
COMMANDS = {
    "greet": lambda name: f"Hello, {name}, from a stranger!",
    "total": lambda rows: sum(row["price"] for row in rows),
}


def hello(request, context):
    return HelloReply(protocol=1, language="python without the SDK", commands=COMMANDS, encoding=JSON)


def call(request, context):
    if request.command not in COMMANDS:
        # A gRPC status works as an error too.
        context.abort(grpc.StatusCode.NOT_FOUND, f"there is no command {request.command}")
    try:
        answer = COMMANDS[request.command](**json.loads(request.args.data))
    except Exception as error:
        return CallReply(error=Error(kind="exception", type=type(error).__name__, message=str(error)))
    return CallReply(value=Value(data=json.dumps(answer).encode(), encoding=JSON))


def method(function, request, reply):
    def checked(message, context):
        # Every user of the machine can reach a port, but only the host knows the secret. The socket is private.
        shown = dict(context.invocation_metadata()).get("snakepit-secret", "")
        if not ADDRESS.startswith("unix:") and not hmac.compare_digest(shown, SECRET):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the secret is missing or wrong")
        return function(message, context)

    return grpc.unary_unary_rpc_method_handler(checked, request.FromString, reply.SerializeToString)


server = grpc.server(ThreadPoolExecutor(4))
methods = {"Hello": method(hello, HelloRequest, HelloReply), "Call": method(call, CallRequest, CallReply)}
health = {"Check": method(lambda request, context: Health(status=1), HelloRequest, Health)}
server.add_generic_rpc_handlers((
    grpc.method_handlers_generic_handler("snakepit.v1.Worker", methods),
    grpc.method_handlers_generic_handler("grpc.health.v1.Health", health),
))
port = server.add_insecure_port(ADDRESS)
server.start()
where = {"socket": ADDRESS[len("unix:"):]} if ADDRESS.startswith("unix:") else {"port": port}
print(json.dumps({"status": "ready", **where, "pid": os.getpid()}), flush=True)
server.wait_for_termination()
