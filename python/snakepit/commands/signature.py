"""Signatures: which arguments a function takes, and whether given arguments fit.

Owns the checks of a command's arguments. They are prepared once for each command, from what the function itself
carries, because importing `inspect` would cost more than the whole start of a worker. Annotations of builtin types are
checked here, and those of other types that can be converted are left to `conversion.py`. All others count as
"anything". Must not know the wire.
"""

import sys

from .registry import BadArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple

    from .conversion import Kind
    from .registry import Command

_VAR_POSITIONAL, _VAR_NAMED = 0x04, 0x08
_NONE = type(None)
# The types that are accepted for an annotation by Python's own rules: an int is also a float, and a bool also an int.
_ACCEPTED: "Dict[Any, Tuple[type, ...]]" = {
    int: (int, bool),
    float: (float, int, bool),
    str: (str,),
    bool: (bool,),
    bytes: (bytes,),
    list: (list,),
    dict: (dict,),
    tuple: (tuple, list),
    set: (set, list),
    frozenset: (frozenset, list),
    _NONE: (_NONE,),
}
_BY_NAME = {kind.__name__: kind for kind in _ACCEPTED}
_BY_NAME.update({"None": _NONE, "List": list, "Dict": dict, "Tuple": tuple, "Set": set, "FrozenSet": frozenset})
_CONVERTED = (tuple, set, frozenset)


class Annotation:
    """The types that a parameter takes, and the type that a list is converted to."""

    __slots__ = ("types", "accepted", "target")

    def __init__(self, types: "List[type]") -> None:
        self.types = types
        accepted = {kind for each in types for kind in _ACCEPTED[each]}
        self.target: "Optional[type]" = None
        for kind in _CONVERTED:
            if kind in types and list not in types:
                self.target = kind
        # The hot path compares only with these: a list that must be converted is not among them.
        self.accepted = frozenset(accepted - {list} if self.target else accepted)

    def __str__(self) -> str:
        return " or ".join("None" if kind is _NONE else kind.__name__ for kind in self.types)

    def fit(self, value: "Any") -> "Any":
        """Returns the value, converted if necessary. Raises TypeError if it does not fit."""
        if type(value) in self.accepted:
            return value
        if self.target is not None and type(value) is list:
            return self.target(value)
        raise TypeError(f"must be {self}, not {type(value).__name__}{self._way_out(value)}")

    def _way_out(self, value: "Any") -> str:
        if bytes not in self.types or type(value) is not list:
            return ""
        return " (a list of numbers is not a byte string; from Rust, send args!, Blob or serde_bytes in place of Vec<u8> in a struct)"


class Conversion:
    """An annotation with types that are not builtins. Every value must be converted."""

    __slots__ = ("kind",)
    accepted: "FrozenSet[type]" = frozenset()

    def __init__(self, kind: "Kind") -> None:
        self.kind = kind

    def __str__(self) -> str:
        return self.kind.name

    def fit(self, value: "Any") -> "Any":
        from .conversion import Misfit

        try:
            return self.kind.convert(value)
        except Misfit as misfit:
            raise TypeError(misfit) from misfit.__cause__


class Signature:
    """The parameters of one function."""

    def __init__(self, name: str, function: "Any") -> None:
        self.name = name
        plain = getattr(function, "__func__", function)
        code = plain.__code__
        skip = 0 if plain is function else 1  # a bound method's self
        positional, keyword = code.co_argcount, code.co_kwonlyargcount
        self.names: "Tuple[str, ...]" = code.co_varnames[skip:positional]
        self.positional_only = max(code.co_posonlyargcount - skip, 0)
        self.keyword_only: "Tuple[str, ...]" = code.co_varnames[positional : positional + keyword]
        self.takes_more = bool(code.co_flags & _VAR_POSITIONAL)
        self.takes_any_name = bool(code.co_flags & _VAR_NAMED)
        defaults = plain.__defaults__ or ()
        self.defaults = dict(zip(self.names[len(self.names) - len(defaults) :], defaults)) if defaults else {}
        self.defaults.update(plain.__kwdefaults__ or {})
        self.optional = set(self.defaults)
        self.annotations = _annotations(plain, self.names + self.keyword_only)
        self.converts_results = _converts_results(plain)

    def problem(self, positional: "Any", named: "Dict[str, Any]") -> "Optional[BadArgument]":
        """Returns why the function cannot be called with these arguments, or None."""
        if len(positional) > len(self.names) and not self.takes_more:
            takes = f"{len(self.names)} argument{'s' if len(self.names) != 1 else ''}"
            return BadArgument(f"{self.name} takes {takes} by position, not {len(positional)}")
        given = set(self.names[: len(positional)])
        for name in named:
            if name not in self.names and name not in self.keyword_only and not self.takes_any_name:
                return BadArgument(f"{self.name} has no argument {name!r}; {self._listing()}", str(name))
        given |= named.keys()
        for name in self.names + self.keyword_only:
            if name not in given and name not in self.optional:
                kind = f" ({self.annotations[name]})" if name in self.annotations else ""
                return BadArgument(f"{self.name} needs the argument {name!r}{kind}", name)
        return None

    def _listing(self) -> str:
        names = self.names + self.keyword_only
        return f"it takes {', '.join(names)}" if names else "it takes none"

    def fit(self, name: str, value: "Any") -> "Any":
        try:
            return self.annotations[name].fit(value)
        except TypeError as error:
            link = " " if str(error).startswith(("must ", "is ")) else ": "
            raise BadArgument(f"{self.name}: the argument {name!r}{link}{error}", name) from error.__cause__


def prepare(command: "Command") -> None:
    """Prepares a command at its first call, for all later calls."""
    function = command.function
    if not hasattr(getattr(function, "__func__", function), "__code__"):
        command.run = _unchecked(function)
        return
    command.signature = Signature(command.name, function)
    command.run = _runner(command.signature, function)
    command.checks = tuple((key, note.accepted) for key, note in command.signature.annotations.items())
    if command.signature.converts_results:
        from .typed_results import converting

        command.run = converting(command)
        return
    command.is_direct = command.signature.positional_only == 0
    names = command.signature.names
    if command.is_direct and len(names) == 1 and not command.signature.keyword_only:
        command.only = names[0]


def _runner(signature: Signature, function: "Callable[..., Any]") -> "Callable[[Any], Any]":
    """Returns a function that checks the `args` of a call and calls the command."""
    checks = tuple((key, note.accepted) for key, note in signature.annotations.items())
    indexed = tuple(
        (index, key, signature.annotations[key].accepted)
        for index, key in enumerate(signature.names)
        if key in signature.annotations
    )
    by_position_only = signature.positional_only > 0

    def run(args: "Any") -> "Any":
        if type(args) is dict:
            for key, accepted in checks:
                if key in args and type(args[key]) not in accepted:
                    args[key] = signature.fit(key, args[key])
            if by_position_only:
                return _by_name_with_positional_only(signature, function, args)
            try:
                return function(**args)
            except TypeError as error:
                if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                    _explain(signature, (), args, error)
                raise
        if type(args) is not list:
            args = [args]
        for index, key, accepted in indexed:
            if index < len(args) and type(args[index]) not in accepted:
                args[index] = signature.fit(key, args[index])
        try:
            return function(*args)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                _explain(signature, args, {}, error)
            raise

    return run


def _explain(signature: Signature, positional: "Any", named: "Dict[Any, Any]", error: TypeError) -> None:
    """Raises the reason in our words if the call itself could not be made (no frame of the function was entered)."""
    problem = signature.problem(positional, named)
    if problem is not None:
        raise problem from None


def _by_name_with_positional_only(
    signature: Signature, function: "Callable[..., Any]", args: "Dict[str, Any]"
) -> "Any":
    """Calls a function that has positional-only parameters with arguments by name."""
    problem = signature.problem((), args)
    if problem is not None:
        raise problem
    positional = []
    named = dict(args)
    for name in signature.names[: signature.positional_only]:
        positional.append(named.pop(name) if name in named else signature.defaults[name])
    return function(*positional, **named)


def _unchecked(function: "Callable[..., Any]") -> "Callable[[Any], Any]":
    def run(args: "Any") -> "Any":
        if type(args) is dict:
            return function(**args)
        return function(*args) if type(args) is list else function(args)

    return run


def _annotations(function: "Any", names: "Tuple[str, ...]") -> "Dict[str, Any]":
    """Returns what is known of each parameter: an `Annotation`, or a `Conversion`."""
    written = _written(function)
    found: "Dict[str, Any]" = {}
    others = []
    for name in names:
        if name in written:
            types = _types(written[name], getattr(function, "__globals__", {}))
            if types:
                found[name] = Annotation(types)
            elif not _is_open(written[name]):
                others.append(name)
    if others:
        from .conversion import hints, kind_of

        resolved = hints(function)
        for name in others:
            kind = kind_of(resolved[name]) if name in resolved else None
            if kind is not None:
                found[name] = Conversion(kind)
    return found


def _converts_results(function: "Any") -> bool:
    """Reports whether the function is annotated to return or yield values of types that are not builtins."""
    written = _written(function)
    if "return" not in written or _is_open(written["return"]):
        return False
    if _types(written["return"], getattr(function, "__globals__", {})):
        return False
    from .conversion import converts, hints

    return converts(hints(function).get("return"))


def _written(function: "Any") -> "Dict[str, Any]":
    try:
        return function.__annotations__ or {}
    except Exception:  # annotations that are evaluated late may name what does not exist
        return {}


def _is_open(note: "Any") -> bool:
    """Reports whether the annotation allows anything, so that `typing` need not be examined."""
    return note in ("Any", "typing.Any", "object") or note is object or getattr(note, "_name", None) == "Any"


def _types(note: "Any", namespace: "Dict[str, Any]") -> "Optional[List[type]]":
    """Returns the builtin types that an annotation means, or None if it includes other types."""
    if isinstance(note, str):
        return _types_of_text(note, namespace)
    if note is None:
        return [_NONE]
    if isinstance(note, type) and note in _ACCEPTED:
        return [note]
    origin = getattr(note, "__origin__", None)
    if type(note).__name__ in ("UnionType", "Union") or (
        origin is not None and origin is getattr(sys.modules.get("typing"), "Union", None)
    ):
        return _all([_types(each, namespace) for each in note.__args__])
    if isinstance(origin, type) and origin in _ACCEPTED:
        return [origin] if all(_is_builtin(each, namespace) for each in getattr(note, "__args__", ())) else None
    return None


def _is_builtin(note: "Any", namespace: "Dict[str, Any]") -> bool:
    """Reports whether the content of an annotation's brackets needs no conversion."""
    if note is Ellipsis or type(note).__name__ == "TypeVar" or _is_open(note):
        return True
    return _types(note, namespace) is not None


def _types_of_text(text: str, namespace: "Dict[str, Any]") -> "Optional[List[type]]":
    """Does the same for an annotation that is still text, as under `from __future__ import annotations`."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1].strip()
    parts = _split(text, "|")
    if len(parts) > 1:
        return _all([_types_of_text(part, namespace) for part in parts])
    name, bracket, rest = text.partition("[")
    name = name.strip()
    if name in namespace:
        if not bracket:
            return _known(namespace[name], namespace)
        if getattr(namespace[name], "__module__", None) != "typing":
            return None
    short = name.rpartition(".")[2]
    if bracket and rest.endswith("]") and short in ("Optional", "Union"):
        inner = _split(rest[:-1], ",") + (["None"] if short == "Optional" else [])
        return _all([_types_of_text(part, namespace) for part in inner])
    if short not in _BY_NAME:
        return None
    if bracket and not (rest.endswith("]") and all(_is_builtin(each, namespace) for each in _split(rest[:-1], ","))):
        return None
    return [_BY_NAME[short]]


def _known(note: "Any", namespace: "Dict[str, Any]") -> "Optional[List[type]]":
    """Resolves a name of the module: a type, or an alias such as `Number = Union[int, float]`."""
    return None if isinstance(note, str) else _types(note, namespace)


def _split(text: str, separator: str) -> "List[str]":
    """Splits at the separator outside brackets."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _all(many: "List[Optional[List[type]]]") -> "Optional[List[type]]":
    """Returns all types of a union, or None if one of its members is not simple."""
    types: "List[type]" = []
    for each in many:
        if each is None:
            return None
        types += [kind for kind in each if kind not in types]
    return types
