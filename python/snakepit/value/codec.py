"""The choice of the codec: the SDK's own, or msgspec once that pays off.

Owns the choice and its moment. Importing msgspec takes about 18 ms and 3.8 MiB, so a worker that codes little never
imports it. `SNAKEPIT_CODEC` is `auto` (the default), `python` or `msgspec`. Must not know the form of values.
"""

import sys

from . import decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List

    from .encode import Encoded

MANY_VALUES = 500
LARGE_VALUE = 16 * 1024


class Codec:
    """The codec in use. `decode` and `encode` are plain attributes, so that later calls do not pay for the switch."""

    def __init__(self, choice: str = "auto") -> None:
        self.name = "python"
        self.due = False
        self._left = MANY_VALUES
        self.decode = decode.decode
        self.encode = encode.encode
        # For payloads that are too small to be nested too deeply. Its errors carry no reason: `decode` gives the
        # reason.
        self.read_small: "Callable[[Any], Any]" = decode.decode
        # For the results of many calls, as entries of a RESULTS without bodies.
        self.encode_good = encode.encode_good
        # For None, numbers, short texts and short byte strings.
        self.write_small: "Callable[[Any], Any]" = encode.write_small
        if choice == "msgspec":
            self.accelerate()
            if self.name != "msgspec":
                raise ImportError("SNAKEPIT_CODEC is msgspec, but msgspec cannot be imported")
        elif choice == "auto":
            self.decode = self.read_small = self._counting_decode
            self.encode, self.write_small = self._counting_encode, self._counting_write
            self.encode_good = self._counting_encode_good
        elif choice != "python":
            raise ValueError(f"SNAKEPIT_CODEC is {choice!r}; it can be auto, python or msgspec")

    def worker_is_loaded(self) -> None:
        """Switches to msgspec if the worker's own code has imported it, since using it then costs nothing."""
        if "msgspec" in sys.modules and self.decode == self._counting_decode:
            self.accelerate()

    def accelerate(self) -> None:
        """Switches to msgspec if it can be imported. Otherwise the SDK's own codec stays, which is equivalent."""
        self.due = False
        try:
            from . import msgspec_codec
        except ImportError:
            self.decode = self.read_small = decode.decode
            self.encode, self.write_small = encode.encode, encode.write_small
            self.encode_good = encode.encode_good
            return
        self.name = "msgspec"
        self.decode = msgspec_codec.decode
        self.read_small = msgspec_codec.read_small
        self.encode = msgspec_codec.encode
        self.encode_good = msgspec_codec.encode_good
        self.write_small = msgspec_codec.write_small

    def _counting_decode(self, payload: "Any", bodies: "Any" = None, depth: int = decode.MAX_DEPTH) -> "Any":
        self._left -= 1
        if self._left < 0 or len(payload) > LARGE_VALUE:
            self.due = True
        return decode.decode(payload, bodies, depth)

    def _counting_encode(
        self, value: "Any", root: str = "result", limit: int = 1 << 32, bodies: bool = True
    ) -> "Encoded":
        encoded = encode.encode(value, root, limit, bodies)
        self._left -= 1
        if self._left < 0 or (type(encoded) is bytes and len(encoded) > LARGE_VALUE):
            self.due = True
        return encoded

    def _counting_write(self, value: "Any") -> "Any":
        self._left -= 1
        if self._left < 0:
            self.due = True
        return encode.write_small(value)

    def _counting_encode_good(self, results: "List[Any]", limit: int) -> bytes:
        self._left -= len(results)
        if self._left < 0:
            self.due = True
        return encode.encode_good(results, limit)
