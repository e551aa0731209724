"""A gRPC echo server as a worker. Usage: grpc_server.py sync|aio. Prints its port and serves until its stdin ends.

The messages are defined here instead of by protoc. The resulting classes are the same.
"""

import asyncio
import concurrent.futures
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

LARGEST = [("grpc.max_receive_message_length", 1 << 24), ("grpc.max_send_message_length", 1 << 24)]


def messages():
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="bench.proto", package="bench", syntax="proto3")
    for name, of in (("Data", field.TYPE_BYTES), ("Number", field.TYPE_UINT64)):
        message = file.message_type.add(name=name)
        message.field.add(name="value", number=1, type=of, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"bench.{name}")) for name in ("Data", "Number")]


Data, Number = messages()


def echo(request, context):
    return Data(value=request.value)


def count(request, context):
    for value in range(request.value):
        yield Number(value=value)


async def echo_async(request, context):
    return Data(value=request.value)


async def count_async(request, context):
    for value in range(request.value):
        yield Number(value=value)


def handlers(echo, count):
    return grpc.method_handlers_generic_handler(
        "bench.Echo",
        {
            "Echo": grpc.unary_unary_rpc_method_handler(echo, Data.FromString, Data.SerializeToString),
            "Count": grpc.unary_stream_rpc_method_handler(count, Number.FromString, Number.SerializeToString),
        },
    )


def serve_sync():
    # Of 1, 4 and 10 threads, 4 answered the most calls per second in short runs.
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), options=LARGEST)
    server.add_generic_rpc_handlers((handlers(echo, count),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(0)


async def serve_async():
    server = grpc.aio.server(options=LARGEST)
    server.add_generic_rpc_handlers((handlers(echo_async, count_async),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(0)


if __name__ == "__main__":
    if sys.argv[1] == "sync":
        serve_sync()
    else:
        asyncio.run(serve_async())
