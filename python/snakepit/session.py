"""Sessions: data that belongs to several calls of one caller.

Owns the two places of a session's data: `store`, in the host, which survives this worker, and `local`, a dict in this
worker, for objects that cannot be sent. Must not know the wire: the store is reached through tools of the host.
"""

from _collections_abc import MutableMapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional

    from .context import Context

_locals: "Dict[str, Dict[Any, Any]]" = {}


class Session:
    """One session, from the view of one call."""

    __slots__ = ("id", "_context")

    def __init__(self, session: str, context: "Optional[Context]") -> None:
        self.id = session
        self._context = context

    @property
    def local(self) -> "Dict[Any, Any]":
        """A dict in this worker. It is empty in other workers, and gone when the session ends."""
        return _locals.setdefault(self.id, {})

    @property
    def store(self) -> "Store":
        """A mapping in the host, the same for all workers."""
        return Store(self.id, self._context)

    def forget(self) -> None:
        _locals.pop(self.id, None)

    def __repr__(self) -> str:
        return f"Session({self.id!r})"


class Store(MutableMapping):  # type: ignore[type-arg]
    """Behaves like a dict whose values travel to the host and back.

    In an `async def` command, only `get`, `set`, `delete` and `keys` are available, and they must be awaited.
    """

    __slots__ = ("_session", "_context")

    def __init__(self, session: str, context: "Optional[Context]") -> None:
        self._session = session
        self._context = context

    def _tool(self, name: str, **args: "Any") -> "Any":
        if self._context is None:
            raise RuntimeError("the store of a session that has ended is gone")
        return self._context.host.call(f"snakepit.session.{name}", session=self._session, **args)

    def get(self, key: str, default: "Any" = None) -> "Any":
        answer = self._tool("get", key=key)
        if hasattr(answer, "__await__"):
            return _or_default(answer, default)
        return default if answer is None else answer

    def set(self, key: str, value: "Any") -> "Any":
        return self._tool("set", key=key, value=value)

    def delete(self, key: str) -> "Any":
        return self._tool("delete", key=key)

    def keys(self) -> "Any":
        return self._tool("keys")

    def __getitem__(self, key: str) -> "Any":
        answer = _now(self._tool("get", key=key))
        if answer is None and key not in _now(self.keys()):
            raise KeyError(key)
        return answer

    def __setitem__(self, key: str, value: "Any") -> None:
        _now(self.set(key, value))

    def __delitem__(self, key: str) -> None:
        if key not in _now(self.keys()):
            raise KeyError(key)
        _now(self.delete(key))

    def __contains__(self, key: object) -> bool:
        return key in _now(self.keys())

    def __iter__(self) -> "Iterator[str]":
        keys: "List[str]" = _now(self.keys())
        return iter(keys)

    def __len__(self) -> int:
        return len(_now(self.keys()))


def _now(answer: "Any") -> "Any":
    if hasattr(answer, "__await__"):
        close = getattr(answer, "close", None) or answer.cancel
        close()
        raise TypeError("in an async command use await store.get(), .set(), .delete() and .keys()")
    return answer


async def _or_default(answer: "Any", default: "Any") -> "Any":
    value = await answer
    return default if value is None else value
