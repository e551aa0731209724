"""Many calls that came together, in the serial loop: run one after another, answered together.

Owns nothing: `slate.py` keeps the answers until they are sent.
"""

from time import monotonic

from .context import Cancelled
from .frames import MORE, RESULTS, Fault, word_of
from .slate import LENGTH
from .messages import ARRAY, BAD_ENTRY, ENTRY_FRAME, GOOD_ENTRY, results_message
from .spans import begin, end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from .commands import Command
    from .serial import Serial

_RESULTS = word_of(RESULTS)
_SOME_RESULTS = word_of(RESULTS, MORE)


def serve_many(serial: "Serial", call: int, message: "Any") -> None:
    """Handles a CALLS. Each of its calls has its own entry, whatever happens to the others.

    Until all entries are sent, they are kept where they survive this worker. Entries that would not fit there, or not
    into the frame, go into the next frame.
    """
    try:
        name, many, left = message[:3]
        len(many)
    except (TypeError, ValueError):
        raise Fault("a CALLS that is not [command, [args, ...], deadline, options]") from None
    serial.message = message
    serial.context = None
    # The order matters: a count of 0 beside the id of the previous call would say that that call had begun nothing.
    serial.slate[0] = call
    serial.slate[1] = 0
    place = serial.place
    place.open(call)
    words, kept, page = place.words, place.entries, place.page
    page.seek(place.start)
    keep = page.write
    limit, most = serial.limit - ENTRY_FRAME, min(len(kept), serial.limit - ARRAY)
    first = size = 0
    encode, slate, stages = serial.codec.encode, serial.slate, serial.stages
    until = None if left is None else serial.arrived + left / 1000
    command: "Optional[Command]" = None
    if type(name) is str and name in serial.commands and serial.commands[name].batch:
        from .serial_batch import serve_lists

        serve_lists(serial, call, serial.commands[name], many, until)
        return
    started = 0
    attached = begin(message[3]) if len(message) > 3 and type(message[3]) is dict else None
    for args in many:
        started += 1
        try:
            if stages and stages.get(call):
                raise Cancelled("cancelled before it was started")
            if until is not None and until <= monotonic():
                raise serial.life.too_late()
            if command is None:
                command = serial.plain_command(name)
            slate[1] = started
            serial.call = call
            encoded = encode(command.run(args), "result", limit, False)
            serial.call = 0
            entry = GOOD_ENTRY + encoded  # type: ignore[operator]
        except BaseException as error:
            serial.call = 0
            entry = BAD_ENTRY + serial.failure(error, ENTRY_FRAME)
        if size + len(entry) > most:
            if size:
                serial.connection.post(_SOME_RESULTS, call, results_message(started - 1 - first, kept[:size]))
                serial.connection.flush()
            first, size = started - 1, 0
            if len(entry) > most:
                serial.connection.post(_SOME_RESULTS, call, results_message(1, entry))
                serial.connection.flush()
                first = started
            place.go_on(first)
            page.seek(place.start)
            if first == started:
                continue
        size += keep(entry)
        words[LENGTH] = size
    serial.connection.post(_RESULTS, call, results_message(started - first, kept[:size]))
    end(attached)
    serial.over(call)
    # Not held back: the next call may end this worker.
    serial.connection.flush()
