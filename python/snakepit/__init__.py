"""Workers for Snakepit: functions that a host calls in a separate process.

    import snakepit

    @snakepit.command
    def add(a: int, b: int) -> int:
        return a + b
"""

from .commands.registry import BadArgument, command, evaluator, health, on_session_end, on_start, on_stop
from .context import Cancelled, Context, HostError, NoCall, context
from .transport.spans import span, trace_context
from .value.error import BadValue

__version__ = "0.1.0"
__all__ = [
    "BadArgument",
    "BadValue",
    "Cancelled",
    "Context",
    "HostError",
    "NoCall",
    "command",
    "context",
    "evaluator",
    "health",
    "on_session_end",
    "on_start",
    "on_stop",
    "span",
    "trace_context",
]
