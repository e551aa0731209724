"""A batch in the serial loop: many calls that came together, for a function that takes lists.

Owns nothing: `commands/batch.py` does the bookkeeping, and `message.py` writes the answer.
"""

from time import monotonic

from ..commands.batch import Lists
from ..context import Cancelled
from ..message import Results
from ..transport.spans import begin_turn, end_turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..commands.registry import Command
    from .loop import Serial


def serve_lists(serial: "Serial", call: int, command: "Command", many: "Any", until: "Optional[float]") -> None:
    """Handles a CALLS of a batch command, from its arguments to its answer."""
    lists = Lists(command, many)
    options = serial.message[3] if len(serial.message) > 3 else None
    while lists.next():
        if serial.stages.get(call):
            lists.refused(Cancelled("cancelled before it was started"))
            continue
        if until is not None and until <= monotonic():
            lists.refused(serial.life.too_late())
            continue
        begun = None
        try:
            serial.slate[1] = lists.started
            serial.call = call
            begun = begin_turn(call, options, lists.current) if options else None
            values = lists.invoke()
            serial.call = 0
            end_turn(begun)
        except BaseException as error:
            serial.call = 0
            end_turn(begun)
            lists.raised(error)
        else:
            lists.answered(values)
    word, encoded = Results(serial, call).of(lists.outcomes)
    serial.connection.post(word, call, encoded)
    serial.over(call)
