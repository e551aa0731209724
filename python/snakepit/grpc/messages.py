"""The messages of `spec/snakepit.proto`, and those of gRPC's own health service.

Owns their descriptors, which are built here when a worker starts. Generated code would be tied to the version of
protobuf that generated it, and refuses to run with an older one; all versions share descriptors. A test compares them
with the specification. Must not know the purpose of the messages.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

    # Type, name and number; `optional` and `repeated` precede the type, and so does `oneof NAME`.
    Fields = Tuple[str, ...]

_FIELD = descriptor_pb2.FieldDescriptorProto

SNAKEPIT: "Dict[str, Fields]" = {
    "HelloRequest": (
        "uint32 protocol = 1", "string engine = 2", "string pool = 3", "string worker = 4", "uint32 concurrency = 5",
        "uint64 max_frame = 6",
    ),
    "HelloReply": (
        "uint32 protocol = 1", "string sdk = 2", "string language = 3", "repeated string commands = 4",
        "repeated string features = 5", "Encoding encoding = 6", "int32 stack_signal = 7",
        "int32 tasks_signal = 8",
    ),
    "Value": ("bytes data = 1", "Encoding encoding = 2"),
    "CallRequest": (
        "uint64 call = 1", "string command = 2", "Value args = 3", "optional string session = 4", "map metadata = 5",
        "optional uint64 nested = 6", "optional string traceparent = 7", "optional string tracestate = 8",
    ),
    "CallReply": ("oneof outcome Value value = 1", "oneof outcome Error error = 2", "repeated Value telemetry = 3",
                  "uint32 said = 4"),
    "Error": (
        "string kind = 1", "optional string type = 2", "string message = 3", "optional string traceback = 4",
        "Error cause = 5", "repeated string notes = 6", "repeated string nearest = 7", "optional string parameter = 8",
        "optional string path = 9",
    ),
    "FromWorker": (
        "uint64 call = 1", "oneof said ToolCall tool_call = 2", "oneof said ToolCredit tool_credit = 3",
        "oneof said uint64 tool_cancel = 4", "oneof said Progress progress = 5", "oneof said Log log = 6",
        "oneof said Ended ended = 7",
    ),
    "FromHost": ("uint64 call = 1", "oneof said ToolAnswer tool_answer = 2", "oneof said Cancel cancel = 3"),
    "ToolCall": (
        "uint64 id = 1", "string tool = 2", "Value args = 3", "Credit stream = 4", "optional string traceparent = 5",
        "optional string tracestate = 6",
    ),
    "Credit": ("uint32 items = 1", "uint64 bytes = 2"),
    "ToolCredit": ("uint64 id = 1", "Credit more = 2"),
    "ToolAnswer": (
        "uint64 id = 1", "oneof answer Value value = 2", "oneof answer Error error = 3", "oneof answer Value item = 4",
        "oneof answer End end = 5",
    ),
    "End": (),
    "Cancel": ("uint32 stage = 1",),
    "Ended": (),
    "Progress": ("optional double fraction = 1", "optional string text = 2"),
    "Log": ("string level = 1", "string text = 2", "Value fields = 3"),
}
SNAKEPIT_ENUMS = {"Encoding": ("ENCODING_MSGPACK = 0", "ENCODING_JSON = 1")}

HEALTH: "Dict[str, Fields]" = {
    "HealthCheckRequest": ("string service = 1",),
    "HealthCheckResponse": ("ServingStatus status = 1",),
}
HEALTH_ENUMS = {"ServingStatus": ("UNKNOWN = 0", "SERVING = 1", "NOT_SERVING = 2", "SERVICE_UNKNOWN = 3")}


def _file(name: str, package: str, messages: "Dict[str, Fields]", enums: "Dict[str, Any]") -> "Any":
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    for enum, values in enums.items():
        listed = file.enum_type.add(name=enum)
        for value in values:
            label, number = value.split(" = ")
            listed.value.add(name=label, number=int(number))
    for message, fields in messages.items():
        made = file.message_type.add(name=message)
        for field in fields:
            _add_field(made, f".{package}.", field, enums)
        # The implicit oneofs of optional fields come after the real ones.
        for field in made.field:
            if field.proto3_optional:
                field.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{field.name}")
    return file


def _add_field(message: "Any", package: str, text: str, enums: "Dict[str, Any]") -> None:
    *before, kind, name, _, number = text.split(" ")
    field = message.field.add(name=name, number=int(number), label=_FIELD.LABEL_OPTIONAL)
    if before and before[0] == "repeated":
        field.label = _FIELD.LABEL_REPEATED
    elif before and before[0] == "optional":
        field.proto3_optional = True
    elif before:
        groups = [group.name for group in message.oneof_decl]
        if before[1] not in groups:
            message.oneof_decl.add(name=before[1])
            groups.append(before[1])
        field.oneof_index = groups.index(before[1])
    if kind == "map":  # from string to string; no others are needed
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        for index, part in enumerate(("key", "value")):
            entry.field.add(name=part, number=index + 1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
        field.type, field.label = _FIELD.TYPE_MESSAGE, _FIELD.LABEL_REPEATED
        field.type_name = f"{package}{message.name}.{entry.name}"
    elif kind in enums:
        field.type, field.type_name = _FIELD.TYPE_ENUM, package + kind
    elif kind[0].isupper():
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, package + kind
    else:
        field.type = _FIELD.Type.Value(f"TYPE_{kind.upper()}")


# A pool of its own, so that it does not collide with generated code of the same file in the common pool.
_pool = descriptor_pool.DescriptorPool()
for _each in (
    _file("snakepit.proto", "snakepit.v1", SNAKEPIT, SNAKEPIT_ENUMS),
    _file("health.proto", "grpc.health.v1", HEALTH, HEALTH_ENUMS),
):
    _pool.AddSerializedFile(_each.SerializeToString())


def _class(name: str) -> "Any":
    descriptor = _pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(_pool).GetPrototype(descriptor)  # before protobuf 4.22


def value_reply(data: bytes) -> bytes:
    """Returns `CallReply(value=Value(data=data))` in serialized form. Built by hand, because protobuf would copy the
    value three times."""
    value = b"\n" + _varint(len(data))
    return b"".join((b"\n", _varint(len(value) + len(data)), value, data))


def _varint(number: int) -> bytes:
    if number < 128:
        return bytes((number,))
    digits = bytearray()
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def serialized(reply: "Any") -> bytes:
    """Serializes a reply, unless it is bytes already."""
    if type(reply) is bytes:
        return reply
    made: bytes = reply.SerializeToString()
    return made


HelloRequest = _class("snakepit.v1.HelloRequest")
HelloReply = _class("snakepit.v1.HelloReply")
Value = _class("snakepit.v1.Value")
CallRequest = _class("snakepit.v1.CallRequest")
CallReply = _class("snakepit.v1.CallReply")
Error = _class("snakepit.v1.Error")
FromWorker = _class("snakepit.v1.FromWorker")
FromHost = _class("snakepit.v1.FromHost")
HealthCheckRequest = _class("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse = _class("grpc.health.v1.HealthCheckResponse")
