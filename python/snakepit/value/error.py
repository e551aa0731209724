"""The errors of both codecs: a value that cannot be sent, and bytes that cannot be read.
"""

TYPE_CHECKING = False  # known to type checkers; importing typing would cost every start several milliseconds
if TYPE_CHECKING:
    from typing import Any, List


class BadValue(ValueError):
    """A value cannot be sent. `path` says where in the whole value it is."""

    __module__ = "snakepit"

    def __init__(self, reason: str, root: str = "value") -> None:
        super().__init__(reason)
        self.reason = reason
        self.root = root
        self.steps: "List[str]" = []

    @property
    def path(self) -> str:
        return self.root + "".join(reversed(self.steps))

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class TooLong(BadValue):
    """The whole value does not fit into a frame. The path is always the root: the place where the limit was reached
    has no meaning."""

    __module__ = "snakepit"

    def __init__(self, limit: int, root: str = "value") -> None:
        super().__init__(f"longer than a frame may be ({limit} bytes); send it in parts, or raise max_frame", root)

    @property
    def path(self) -> str:
        return self.root


class BadPayload(ValueError):
    """Received bytes are not a value."""

    __module__ = "snakepit"


def type_name(value: "Any") -> str:
    """Returns the type's name, qualified unless it is a builtin."""
    kind = type(value)
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
