"""A worker that is a gRPC server, from its start to its end: `spec/snakepit.proto`.

Owns the server, its ready line, and the access to it. `calls.py` handles the calls. Needs grpcio and protobuf.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, NoReturn, Optional

    from .calls import Calls

# The room for what surrounds a value in its message.
AROUND = 1 << 20
SECRET = "snakepit-secret"
FORKS = "GRPC_ENABLE_FORK_SUPPORT"
# The oldest versions that work: the first grpcio for Python 3.9, and the first protobuf that knows `optional` in
# proto3.
OLDEST = {"grpcio": (1, 33), "protobuf": (3, 12)}


def serve(worker: str, address: str) -> "NoReturn":
    """Runs the worker, and ends the process."""
    # The fork support of grpcio, which keeps gRPC usable in forked children, often ends or blocks the children of a
    # server.
    is_unsaid = FORKS not in os.environ
    os.environ.setdefault(FORKS, "0")
    try:
        import grpc
        from google import protobuf

        check_version("grpcio", grpc.__version__)
        check_version("protobuf", protobuf.__version__)
        from .calls import Calls, Inline, Post
    except ImportError as error:
        _leave(f"this worker cannot serve gRPC: {error}; run: {sys.executable} -m pip install grpcio protobuf")
    from ..lifecycle import Life
    from ..loader import load
    from ..worker import show_stacks

    secret = os.environ.pop("SNAKEPIT_SECRET", None)
    post = Post(_number("SNAKEPIT_MAX_FRAME", 64 << 20))
    os.register_at_fork(after_in_child=post.disown)
    life = Life(post)
    try:
        codec = Inline(os.environ.get("SNAKEPIT_CODEC", "auto"))
        load(worker)
        codec.worker_is_loaded()
        calls = Calls(post, codec, life, _number("SNAKEPIT_CONCURRENCY", 1), life.registry.has_async())
        for hook in life.registry.start:
            life.run_hook(hook)
        show_stacks(life)
        server = Server(calls, address, secret)
        if is_unsaid:
            os.environ.pop(FORKS, None)  # the worker's child programs are a different matter
    except BaseException as error:
        if not isinstance(error, SystemExit):
            sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
    try:
        server.announce()
        calls.run()
        life.stop()
        server.stop()
        life.end()
    except KeyboardInterrupt:
        life.leave("interrupted")


def check_version(package: str, version: str) -> None:
    """Checks the version of a package. An older version would fail in ways that are hard to understand."""
    parts = [int(part) if part.isdigit() else 0 for part in version.split(".")[:2]]
    oldest = OLDEST[package]
    if tuple(parts) < oldest:
        raise ImportError(f"{package} {version} is too old, {oldest[0]}.{oldest[1]} is the oldest that works")


def _number(name: str, otherwise: int) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else otherwise


def _leave(reason: str) -> "NoReturn":
    print(f"snakepit: {reason}", file=sys.stderr)
    sys.exit(1)


class Server:
    """The gRPC server of a worker. It listens as soon as it is created."""

    def __init__(self, calls: "Calls", address: str, secret: "Optional[str]") -> None:
        import grpc

        from .threads import Threads

        self.calls = calls
        self.threads = Threads()
        self.address = address
        # A Unix socket is in a directory that no other user may enter.
        is_open = not address.startswith("unix:")
        if is_open and not secret:
            raise RuntimeError(f"a server on {address} can be reached by every user: SNAKEPIT_SECRET must be set")
        limit = calls.connection.max_frame + AROUND
        self.server = grpc.server(
            self.threads,
            handlers=(_methods(self, secret if is_open else None),),
            options=(
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                # Two servers on one port would share its calls.
                ("grpc.so_reuseport", 0),
            ),
        )
        self.port = self.server.add_insecure_port(address)
        self.server.start()

    def announce(self) -> None:
        """Prints the ready line in one write, bypassing whatever the worker's code may have made of `sys.stdout`."""
        from json import dumps

        where = {"port": self.port} if self.port > 1 else {"socket": self.address[len("unix:") :]}
        line = dumps({"status": "ready", **where, "pid": os.getpid()})
        try:
            sys.stdout.flush()
        except (AttributeError, OSError, ValueError):
            pass
        # Earlier output may not have ended its line.
        os.write(1, f"\n{line}\n".encode())

    def stop(self) -> None:
        self.calls.connection.link.put(None)
        self.server.stop(1).wait()

    # --- the methods ---

    def hello(self, request: "Any", context: "Any") -> "Any":
        from .. import __version__
        from .messages import HelloReply

        version = sys.version_info
        return HelloReply(
            protocol=1,
            sdk=__version__,
            language=f"python {version[0]}.{version[1]}.{version[2]}",
            commands=sorted(self.calls.life.registry.commands),
            features=["link", "engine"],
            stack_signal=self.calls.life.signals.get("stack", 0),
            tasks_signal=self.calls.life.signals.get("tasks", 0),
        )

    def link(self, requests: "Any", context: "Any") -> "Any":
        from threading import Thread

        context.send_initial_metadata(())
        Thread(target=self._read_link, args=(requests,), name="snakepit-link", daemon=True).start()
        return iter(self.calls.connection.link.get, None)

    def _read_link(self, requests: "Any") -> None:
        calls = self.calls
        try:
            for message in requests:
                if message.HasField("cancel"):
                    calls.cancel(message.call, message.cancel.stage)
                elif message.HasField("tool_answer"):
                    calls.tool_answered(message.tool_answer)
        except Exception:  # the host is gone or has hung up: grpc raises an exception without details
            calls.life.gone()
        calls.drain()

    def check(self, request: "Any", context: "Any") -> "Any":
        """Answers `grpc.health.v1.Health/Check`: whether this worker would answer, according to its own hook."""
        import grpc

        from .messages import HealthCheckResponse

        if request.service not in ("", "snakepit.v1.Worker"):
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r}")
        status = "SERVING"
        try:
            self.calls.life.engine_command("snakepit.health").run({})
        except Exception as error:
            status = "NOT_SERVING"
            context.set_trailing_metadata((("snakepit-reason", ascii(str(error))[:1000]),))
        return HealthCheckResponse(status="NOT_SERVING" if self.calls.draining else status)

    def watch(self, request: "Any", context: "Any") -> "Any":
        """Yields the current state, and nothing more until the end."""
        yield self.check(request, context)
        if context.is_active():
            from threading import Event

            over = Event()
            if context.add_callback(over.set):
                over.wait()


def _methods(server: Server, secret: "Optional[str]") -> "Any":
    """Returns the methods by their paths, for callers that know the secret."""
    import grpc

    from . import messages

    def unary(method: "Any", request: "Any") -> "Any":
        return grpc.unary_unary_rpc_method_handler(method, request.FromString, messages.serialized)

    def stream(method: "Any", request: "Any") -> "Any":
        return grpc.unary_stream_rpc_method_handler(method, request.FromString, messages.serialized)

    def refuse(request: "Any", context: "Any") -> "NoReturn":
        context.abort(grpc.StatusCode.UNAUTHENTICATED, f"the metadata {SECRET} is not this worker's secret")
        raise AssertionError  # abort has raised

    threads = server.threads
    request, health = messages.CallRequest, messages.HealthCheckRequest
    methods: "Dict[str, Any]" = {
        "/snakepit.v1.Worker/Hello": unary(server.hello, messages.HelloRequest),
        "/snakepit.v1.Worker/Call": unary(threads.holding(server.calls.call), request),
        "/snakepit.v1.Worker/Stream": stream(threads.holding_on(server.calls.stream), request),
        # Its messages are already serialized.
        "/snakepit.v1.Worker/Link": grpc.stream_stream_rpc_method_handler(
            threads.holding_on(server.link), messages.FromHost.FromString
        ),
        "/grpc.health.v1.Health/Check": unary(threads.holding(server.check), health),
        "/grpc.health.v1.Health/Watch": stream(threads.holding_on(server.watch), health),
    }
    refused = grpc.unary_unary_rpc_method_handler(refuse)

    class Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: "Any") -> "Any":
            if secret is not None and not _knows(details.invocation_metadata, secret):
                return refused
            return methods.get(details.method)

    return Methods()


def _knows(metadata: "Any", secret: str) -> bool:
    from hmac import compare_digest

    given = [value for key, value in metadata if key == SECRET]
    return len(given) == 1 and compare_digest(str(given[0]).encode(), secret.encode())
