"""Typed arguments: annotations beyond the builtin types, and the conversion of values to them.

Owns the conversions of dataclasses, typed dicts, enums, dates, Decimal, UUID and Path, and of pydantic's models and
numpy's numbers if the worker has imported these packages. Loaded only for a command whose annotations name such a type.
`value/encode.py` has the way back. Must not know the wire.
"""

import sys
import typing
from datetime import date, datetime, time, timedelta

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    Convert = Callable[[Any], Any]

_NONE = type(None)
# The types that arrive unchanged, and the types that are accepted for them by Python's own rules: an int is also a
# float, and a bool is also an int.
_PLAIN: "Dict[Any, Tuple[type, ...]]" = {
    int: (int, bool),
    float: (float, int, bool),
    str: (str,),
    bool: (bool,),
    bytes: (bytes,),
    _NONE: (_NONE,),
}
_SEQUENCES: "Dict[Any, type]" = {list: list, tuple: tuple, set: set, frozenset: frozenset}
_MOST_PROBLEMS = 3


class Misfit(Exception):
    """A value that does not match its annotation. `steps` is the path to it, last step first.

    `is_inside` is true if the value has the right type, but its content is wrong.
    """

    def __init__(self, reason: str, is_inside: bool = True) -> None:
        super().__init__(reason)
        self.steps: "List[str]" = []
        self.is_inside = is_inside

    def __str__(self) -> str:
        path = "".join(reversed(self.steps))
        return f"{path.lstrip('.')}: {self.args[0]}" if path else str(self.args[0])


def _other_type(wanted: str, value: "Any") -> Misfit:
    return Misfit(f"must be {wanted}, not {type(value).__name__}", False)


class Kind:
    """The meaning of an annotation: a readable name and the conversion. `is_plain` is true if nothing is converted."""

    __slots__ = ("name", "convert", "is_plain")

    def __init__(self, name: str, convert: "Convert", is_plain: bool = False) -> None:
        self.name = name
        self.convert = convert
        self.is_plain = is_plain


def hints(function: "Any") -> "Dict[str, Any]":
    """Returns the annotations of a function or class with every name resolved, or nothing if one cannot be resolved."""
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that exists only for type checkers, or anything else that an annotation may do
        return {}


def kind_of(note: "Any") -> "Optional[Kind]":
    """Returns the meaning of the annotation, or None if it says nothing that can be checked or converted."""
    return _kind_of(note, {})


def converts(note: "Any") -> bool:
    """Reports whether values of this annotation have a type that is converted before it is sent."""
    args = _arguments(note)
    if args and _origin(note) is not typing.Literal:
        return any(converts(each) for each in args)
    kind = _kind_of(note, {})
    return kind is not None and not kind.is_plain


def _origin(note: "Any") -> "Any":
    return typing.get_origin(note)


def _arguments(note: "Any") -> "Tuple[Any, ...]":
    return typing.get_args(note)


def _kind_of(note: "Any", known: "Dict[Any, Kind]") -> "Optional[Kind]":
    """Returns the meaning of the annotation. `known` holds the classes whose fields are being examined, because a
    class may contain others of its own kind."""
    note = getattr(note, "__supertype__", note)  # a NewType
    if note is None:
        note = _NONE
    origin = _origin(note)
    if origin is not None:
        return _generic(note, origin, known)
    if not isinstance(note, type):
        return None
    if note in known:
        return known[note]
    if note in _PLAIN:
        return _plain(note)
    if note in _SEQUENCES or note is dict:
        return _generic(note, note, known)
    return _class(note, known)


def _plain(kind: "Any") -> Kind:
    accepted = _PLAIN[kind]
    name = "None" if kind is _NONE else kind.__name__

    def convert(value: "Any") -> "Any":
        if type(value) not in accepted:
            raise _other_type(name, value)
        return value

    return Kind(name, convert, True)


def _generic(note: "Any", origin: "Any", known: "Dict[Any, Kind]") -> "Optional[Kind]":
    args = _arguments(note)
    if origin is typing.Union or type(note).__name__ == "UnionType":
        return _union(args, known)
    if origin is typing.Literal:
        return _literal(args)
    if origin in _SEQUENCES:
        return _sequence(origin, args, known)
    if origin is dict:
        return _mapping(args, known)
    if getattr(note, "__metadata__", None) is not None:  # Annotated
        return _kind_of(args[0], known)
    return _class(origin, known) if isinstance(origin, type) else None


def _union(args: "Tuple[Any, ...]", known: "Dict[Any, Kind]") -> "Optional[Kind]":
    members = [_kind_of(each, known) for each in args]
    if any(member is None for member in members):
        return None
    # A value that arrives as one of the plain types is not converted to another type: a text stays a text in
    # `Union[Path, str]`.
    kinds = sorted((member for member in members if member is not None), key=lambda member: not member.is_plain)
    name = " or ".join(member.name for member in members if member is not None)

    def convert(value: "Any") -> "Any":
        deepest: "Optional[Misfit]" = None
        for kind in kinds:
            try:
                return kind.convert(value)
            except Misfit as misfit:
                # The member that got furthest into the value was meant.
                if misfit.is_inside and (deepest is None or len(misfit.steps) > len(deepest.steps)):
                    deepest = misfit
        raise deepest or _other_type(name, value)

    return Kind(name, convert, all(kind.is_plain for kind in kinds))


def _literal(args: "Tuple[Any, ...]") -> Kind:
    name = " or ".join(repr(each) for each in args)

    def convert(value: "Any") -> "Any":
        for each in args:
            if type(each) is type(value) and each == value:
                return value
        raise Misfit(f"must be {name}, not {_shown(value)}")

    return Kind(name, convert, True)


def _sequence(target: "Any", args: "Tuple[Any, ...]", known: "Dict[Any, Kind]") -> Kind:
    if target is tuple and args and Ellipsis not in args:
        return _fixed_tuple(args, known)
    inner = _kind_of(args[0], known) if args else None
    wanted = (list,) if target is list else (list, target)

    def convert(value: "Any") -> "Any":
        if type(value) not in wanted:
            raise _other_type(target.__name__, value)
        if inner is None:
            return value if type(value) is target else target(value)
        return target([_within(f"[{index}]", inner, item) for index, item in enumerate(value)])

    return Kind(target.__name__, convert, inner is None or inner.is_plain)


def _fixed_tuple(args: "Tuple[Any, ...]", known: "Dict[Any, Kind]") -> Kind:
    kinds = [_kind_of(each, known) for each in args]

    def convert(value: "Any") -> "Any":
        if type(value) not in (list, tuple):
            raise _other_type("tuple", value)
        if len(value) != len(kinds):
            raise Misfit(f"must have {len(kinds)} items, not {len(value)}")
        return tuple(
            item if kind is None else _within(f"[{index}]", kind, item)
            for index, (kind, item) in enumerate(zip(kinds, value))
        )

    return Kind("tuple", convert, all(kind is None or kind.is_plain for kind in kinds))


def _mapping(args: "Tuple[Any, ...]", known: "Dict[Any, Kind]") -> Kind:
    keys, values = (_kind_of(each, known) for each in args) if len(args) == 2 else (None, None)

    def convert(value: "Any") -> "Any":
        if type(value) is not dict:
            raise _other_type("dict", value)
        if keys is None and values is None:
            return value
        return {
            key if keys is None else _within(f"[{_shown(key)}]", keys, key): item
            if values is None
            else _within(f"[{_shown(key)}]", values, item)
            for key, item in value.items()
        }

    return Kind("dict", convert, all(kind is None or kind.is_plain for kind in (keys, values)))


def _within(step: str, kind: Kind, value: "Any") -> "Any":
    try:
        return kind.convert(value)
    except Misfit as misfit:
        misfit.is_inside = True
        misfit.steps.append(step)
        raise


def _class(kind: type, known: "Dict[Any, Kind]") -> "Optional[Kind]":
    for base, make in _CLASSES:
        if issubclass(kind, base):
            return make(kind)
    for module, name, make in _IMPORTED:
        loaded = getattr(sys.modules.get(module), name, None)
        if isinstance(loaded, type) and issubclass(kind, loaded):
            return make(kind)
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass(kind, known)
    if issubclass(kind, dict) and hasattr(kind, "__required_keys__"):
        return _typed_dict(kind, known)
    return None


# --- classes with fields ---


def _fields(kind: type, names: "List[str]", known: "Dict[Any, Kind]") -> "Dict[str, Optional[Kind]]":
    notes = hints(kind)
    return {name: _kind_of(notes[name], known) if name in notes else None for name in names}


def _fields_of(value: "Any", name: str, kinds: "Dict[str, Optional[Kind]]") -> "Dict[str, Any]":
    if type(value) is not dict:
        raise _other_type(f"{name}, as a dict of its fields", value)
    converted = {}
    for key, item in value.items():
        kind = kinds.get(key)
        converted[key] = item if kind is None else _within(f".{key}", kind, item)
    return converted


def _dataclass(kind: "Any", known: "Dict[Any, Kind]") -> Kind:
    known[kind] = made = Kind(kind.__name__, lambda value: value)
    taken = [name for name, field in kind.__dataclass_fields__.items() if field.init and _is_field(field)]
    kinds = _fields(kind, taken, known)
    missing = _missing()
    needed = [
        name
        for name in taken
        if kind.__dataclass_fields__[name].default is missing
        and kind.__dataclass_fields__[name].default_factory is missing
    ]

    def convert(value: "Any") -> "Any":
        fields = _fields_of(value, kind.__name__, kinds)
        for name in fields:
            if name not in kinds:
                raise Misfit(f"{kind.__name__} has no field {_shown(name)}; it has {', '.join(taken)}")
        for name in needed:
            if name not in fields:
                raise Misfit(f"{kind.__name__} needs the field {name!r}")
        try:
            return kind(**fields)
        except (TypeError, ValueError) as error:  # its own __post_init__ refuses them
            raise Misfit(f"is not a valid {kind.__name__}: {error}") from error

    made.convert = convert
    return made


def _is_field(field: "Any") -> bool:
    return getattr(field._field_type, "name", "") == "_FIELD"


def _missing() -> "Any":
    from dataclasses import MISSING  # already loaded by any dataclass

    return MISSING


def _typed_dict(kind: "Any", known: "Dict[Any, Kind]") -> Kind:
    known[kind] = made = Kind(kind.__name__, lambda value: value)
    kinds = _fields(kind, list(hints(kind)), known)

    def convert(value: "Any") -> "Any":
        fields = _fields_of(value, kind.__name__, kinds)
        for name in sorted(kind.__required_keys__):
            if name not in fields:
                raise Misfit(f"{kind.__name__} needs the key {name!r}")
        return fields

    made.convert = convert
    return made


def _model(kind: "Any") -> Kind:
    """Returns the conversion for a model of pydantic, which has rules of its own."""
    validate = getattr(kind, "model_validate", None) or kind.parse_obj

    def convert(value: "Any") -> "Any":
        if type(value) is not dict:
            raise _other_type(f"{kind.__name__}, as a dict of its fields", value)
        try:
            return validate(value)
        except ValueError as error:  # its ValidationError is a ValueError
            raise Misfit(f"is not a valid {kind.__name__}: {_problems(error)}") from None

    return Kind(kind.__name__, convert)


def _problems(error: "Any") -> str:
    """Returns pydantic's message in one line."""
    try:
        found = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    except Exception:
        return str(error)
    more = f"; {len(found) - _MOST_PROBLEMS} more" if len(found) > _MOST_PROBLEMS else ""
    return "; ".join(found[:_MOST_PROBLEMS]) + more


# --- classes of one value ---


def _enum(kind: "Any") -> Kind:
    def convert(value: "Any") -> "Any":
        try:
            return kind(value)
        except (ValueError, TypeError):
            choices = ", ".join(_shown(member.value) for member in list(kind)[:20])
            raise Misfit(f"must be {kind.__name__}, one of {choices}, not {_shown(value)}") from None

    return Kind(kind.__name__, convert)


def _from(kinds: "Tuple[type, ...]", form: str, make: "Callable[[Any, Any], Any]") -> "Callable[[Any], Kind]":
    """Returns the conversion for a class that is created from a value of one of these types, by a function of the
    class and the value."""

    def kind_for(target: "Any") -> Kind:
        def convert(value: "Any") -> "Any":
            if type(value) is target:
                return value
            if type(value) not in kinds:
                raise _other_type(f"{target.__name__}, as {form}", value)
            try:
                return make(target, value)
            except (ValueError, ArithmeticError) as error:
                said = str(error)
                reason = f" ({said})" if said and "[<class" not in said else ""
                raise Misfit(f"must be {target.__name__}, as {form}, not {_shown(value)}{reason}") from None

        return Kind(target.__name__, convert)

    return kind_for


def _iso(kind: "Any", text: "Any") -> "Any":
    # Before 3.11, Python's own parser does not know the Z.
    return kind.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "zZ" and kind is not date else text)


def _decimal(kind: "Any", value: "Any") -> "Any":
    # The digits that a float shows, not the hundred digits of its exact value.
    return kind(repr(value) if type(value) is float else value)


def _array(kind: "Any") -> Kind:
    def convert(value: "Any") -> "Any":
        if type(value) is not list:
            raise _other_type("ndarray, as a list", value)
        try:
            return sys.modules["numpy"].array(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise Misfit(f"is not a valid ndarray: {error}") from None

    return Kind("ndarray", convert)


def _number(kind: "Any") -> Kind:
    """Returns the conversion for a scalar of numpy, from a number that it can hold."""
    numpy: "Any" = sys.modules["numpy"]
    is_integer = issubclass(kind, numpy.integer)
    accepted: "Tuple[type, ...]"
    if issubclass(kind, numpy.bool_):
        accepted, form = (bool,), "a bool"
    elif is_integer:
        accepted, form = (int, bool), "an integer"
    elif issubclass(kind, numpy.floating):
        accepted, form = (float, int, bool), "a number"
    else:
        return Kind(kind.__name__, lambda value: value)

    def convert(value: "Any") -> "Any":
        if type(value) not in accepted:
            raise _other_type(f"{kind.__name__}, as {form}", value)
        if is_integer and kind is not numpy.integer:
            limits = numpy.iinfo(kind)
            if not limits.min <= value <= limits.max:
                raise Misfit(f"must be {kind.__name__}, from {limits.min} to {limits.max}, not {_shown(value)}")
        return kind(value)

    return Kind(kind.__name__, convert)


def _shown(value: "Any") -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."


# A datetime is a date, so it comes first. It is sent as it is; hosts that have only JSON send it as text.
_CLASSES: "Tuple[Tuple[type, Callable[[Any], Kind]], ...]" = (
    (datetime, _from((str,), "a date-time or its ISO text", _iso)),
    (date, _from((str,), "an ISO text such as '2026-01-31'", _iso)),
    (time, _from((str,), "an ISO text such as '12:30:00'", _iso)),
    (timedelta, _from((int, float), "a number of seconds", lambda kind, value: kind(seconds=value))),
)
# An annotation can name them only if other code has imported them.
_IMPORTED: "Tuple[Tuple[str, str, Callable[[Any], Kind]], ...]" = (
    ("enum", "Enum", _enum),
    ("decimal", "Decimal", _from((str, int, float), "a text or a number", _decimal)),
    ("uuid", "UUID", _from((str,), "a text", lambda kind, value: kind(value))),
    ("pathlib", "PurePath", _from((str,), "a text", lambda kind, value: kind(value))),
    ("pydantic", "BaseModel", _model),
    ("numpy", "generic", _number),
    ("numpy", "ndarray", _array),
)
