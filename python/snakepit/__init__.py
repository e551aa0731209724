"""Workers for Snakepit: functions that a host calls in a separate process.

    import snakepit

    @snakepit.command
    def add(a: int, b: int) -> int:
        return a + b
"""

from .commands.registry import BadArgument, command, evaluator, health, on_session_end, on_start, on_stop
from .context import Cancelled, Context, HostError, NoCall, context
from .value.error import BadValue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .transport.spans import span, trace_context

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


if not TYPE_CHECKING:

    def __getattr__(name):
        """Imports what only workers with traces need, when it is used for the first time."""
        if name not in ("span", "trace_context"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .transport import spans

        value = globals()[name] = getattr(spans, name)
        return value
