"""The messages of gRPC match the specification."""

import os
import re

import pytest
from harness import ROOT

pytest.importorskip("google.protobuf")

from snakepit.grpc import messages as grpc_messages  # noqa: E402


def written():
    """Returns the content of `spec/snakepit.proto` in the form of `grpc/messages.py`."""
    with open(os.path.join(ROOT, "spec", "snakepit.proto")) as file:
        text = re.sub(r"//.*", "", file.read())
    enums, messages = {}, {}
    for kind, name, body in re.findall(r"^(enum|message) (\w+) \{(.*?)^\}", text.replace("{}", "{\n}"), re.S | re.M):
        if kind == "enum":
            enums[name] = tuple(re.findall(r"(\w+ = \d+);", body))
            continue
        fields, group = [], ""
        for line in filter(None, (line.strip() for line in body.splitlines())):
            if line.startswith("oneof "):
                group = f"oneof {line.split()[1]} "
            elif line == "}":
                group = ""
            else:
                fields.append(group + line.rstrip(";").replace("map<string, string>", "map"))
        messages[name] = tuple(fields)
    return messages, enums


def the_messages_are_those_of_the_specification():
    messages, enums = written()
    assert messages == grpc_messages.SNAKEPIT
    assert enums == grpc_messages.SNAKEPIT_ENUMS


def each_message_can_be_made_and_comes_back():
    request = grpc_messages.CallRequest(
        call=1 << 63, command="é", args={"data": b"\x80"}, metadata={"a": "b"}, nested=0, session=""
    )
    again = grpc_messages.CallRequest.FromString(request.SerializeToString())
    assert again == request
    assert again.HasField("nested") and again.HasField("session") and not again.HasField("traceparent")


def a_value_that_is_written_by_hand_is_what_protobuf_writes():
    for size in (1, 2, 124, 125, 126, 127, 128, 129, 16379, 16380, 16381, 16382, 16383, 16384, 1 << 21, (1 << 21) + 1):
        data = bytes(size)
        reply = grpc_messages.CallReply(value=grpc_messages.Value(data=data))
        assert grpc_messages.value_reply(data) == reply.SerializeToString() == grpc_messages.serialized(reply), size
        assert grpc_messages.serialized(grpc_messages.value_reply(data)) == reply.SerializeToString()
