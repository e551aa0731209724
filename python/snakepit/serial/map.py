"""Many calls that came together, in the serial loop: run one after another, answered together.

Owns nothing: `transport/slate.py` keeps the answers until they are sent.
"""

from time import monotonic

from ..context import Cancelled
from ..frame import MORE, RESULTS, Fault, word_of
from ..message import ARRAY, BAD_ENTRY, ENTRY_FRAME, GOOD_ENTRY, results_message
from ..transport.slate import LENGTH
from ..transport.spans import begin, end
from ..value.encode import NUMBERS, SHORT, TEXTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Tuple

    from ..commands.registry import Command
    from ..transport.slate import Place
    from .loop import Serial

_RESULTS = word_of(RESULTS)
_SOME_RESULTS = word_of(RESULTS, MORE)
_ABSENT = object()
# Arguments of these types are not the only argument itself.
_SEVERAL = frozenset((dict, list))


def serve_map(serial: "Serial", call: int, message: "Any") -> None:
    """Handles a CALLS. Each of its calls has its own entry, whatever happens to the others."""
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
    until = None if left is None else serial.arrived + left / 1000
    command = serial.commands.get(name) if type(name) is str else None
    if command is not None and command.batch:
        from .batch import serve_lists

        serve_lists(serial, call, command, many, until)
        return
    attached = begin(message[3]) if len(message) > 3 and type(message[3]) is dict else None
    serve_each(serial, call, command, name, many, until)
    end(attached)
    serial.over(call)
    # Not held back: the next call may end this worker.
    serial.connection.flush()


def serve_each(
    serial: "Serial", call: int, known: "Optional[Command]", name: "Any", many: "Any", until: "Optional[float]"
) -> None:
    """Runs the calls one after another, and posts their entries.

    Until all entries are sent, they are kept where they survive this worker. Entries that would not fit there, or not
    into the frame, go into the next frame.

    Each step of the loop is paid for by every input of a map, so whatever can be found out before is a local variable.
    """
    place, codec, slate, stages = serial.place, serial.codec, serial.slate, serial.stages
    place.open(call)
    words, page = place.words, place.page
    page.seek(place.start)
    keep, encode, write_small = page.write, codec.encode, codec.write_small
    limit, most = serial.limit - ENTRY_FRAME, min(len(place.entries), serial.limit - ARRAY)
    numbers, texts, several = NUMBERS, TEXTS if limit > 4 * SHORT else (), _SEVERAL
    command: "Any" = known
    function: "Any" = None
    only = accepted = None
    fitting: "Any" = ()
    started = first = size = 0
    for args in many:
        started += 1
        try:
            if stages and stages.get(call):
                raise Cancelled("cancelled before it was started")
            if until is not None and until <= monotonic():
                raise serial.life.too_late()
            if only is None:
                if command is None:
                    command = serial.plain_command(name)
                elif command.streams:
                    raise serial.life.streaming(name)
                slate[1] = started
                serial.call = call
                value = command.run(args)
                # Known after the first run.
                function, only = command.function, command.only
                accepted = command.checks[0][1] if command.checks else None
                fitting = accepted - several if only is not None and accepted is not None else ()
            elif type(args) in fitting:
                slate[1] = started
                serial.call = call
                value = function(args)
            else:
                if type(args) in several:
                    argument = args.get(only, _ABSENT) if type(args) is dict and len(args) == 1 else _ABSENT
                else:
                    argument = args
                slate[1] = started
                serial.call = call
                if argument is _ABSENT:
                    value = command.run(args)
                else:
                    if accepted is not None and type(argument) not in accepted:
                        argument = command.fit(only, argument)
                    value = function(argument)
            serial.call = 0
            kind = type(value)
            if kind in numbers or kind in texts and len(value) < SHORT:
                try:
                    entry = GOOD_ENTRY + write_small(value)
                except Exception:  # a big integer, or text that `encode` explains
                    entry = GOOD_ENTRY + encode(value, "result", limit, False)  # type: ignore[operator]
            else:
                entry = GOOD_ENTRY + encode(value, "result", limit, False)  # type: ignore[operator]
        except BaseException as error:
            serial.call = 0
            entry = BAD_ENTRY + serial.failure(error, ENTRY_FRAME)
        size += len(entry)
        if size > most:
            first, size = send_some(serial, call, place, started, first, size - len(entry), entry)
        else:
            keep(entry)
        words[LENGTH] = size
    serial.connection.post(_RESULTS, call, results_message(started - first, place.entries[:size]))


def send_some(
    serial: "Serial", call: int, place: "Place", started: int, first: int, size: int, entry: bytes
) -> "Tuple[int, int]":
    """Sends the entries that are kept, because the next one does not fit to them, and keeps that one. If it does not
    even fit there alone, it is sent, too. Returns the index of the first entry that is kept, and the size of all."""
    if size:
        serial.connection.post(_SOME_RESULTS, call, results_message(started - 1 - first, place.entries[:size]))
        serial.connection.flush()
    if len(entry) <= len(place.entries) and len(entry) <= serial.limit - ARRAY:
        place.go_on(started - 1)
        place.page.seek(place.start)
        place.page.write(entry)
        return started - 1, len(entry)
    serial.connection.post(_SOME_RESULTS, call, results_message(1, entry))
    serial.connection.flush()
    place.go_on(started)
    place.page.seek(place.start)
    return started, 0
