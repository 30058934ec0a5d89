"""Observe or replace calls of chosen objects' methods, for as long as a `with` block lasts.

The reference is never edited: its classes get a wrapper that looks the instance up and is taken away again.
"""

from collections.abc import Callable
from typing import Any, Self

After = Callable[[tuple[Any, ...], dict[str, Any], Any, Any], None]


class Watch:
    """A set of hooks on instances; active inside `with`.

    `on(target, method, after, before)` calls `token = before(args, kwargs)`, then `after(args, kwargs, result, token)`.
    `instead(target, method, function)` answers the call with `function(*args, **kwargs)`.
    """

    def __init__(self) -> None:
        self._hooks: dict[tuple[int, str], tuple[Any, Callable[..., Any]]] = {}
        self._undo: list[tuple[type, str, Any]] = []

    def on(
        self,
        target: object,
        method: str = "__call__",
        *,
        after: After,
        before: Callable[[tuple[Any, ...], dict[str, Any]], Any] | None = None,
    ) -> Self:
        """Call `after` each time `target.method` has returned."""

        def around(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            token = before(args, kwargs) if before else None
            result = original(target, *args, **kwargs)
            after(args, kwargs, result, token)
            return result

        return self._add(target, method, around)

    def instead(self, target: object, method: str, function: Callable[..., Any]) -> Self:
        """Answer `target.method(...)` with `function(...)`."""
        return self._add(target, method, lambda _original, args, kwargs: function(*args, **kwargs))

    def _add(self, target: object, method: str, around: Callable[..., Any]) -> Self:
        # The target is kept with its hook: an id is only unique among the living.
        self._hooks[id(target), method] = (target, around)
        if self._undo:
            self._patch(type(target), method)
        return self

    def _patch(self, cls: type, method: str) -> None:
        if any(seen is cls and name == method for seen, name, _ in self._undo):
            return
        own = cls.__dict__.get(method)
        original = getattr(cls, method)
        hooks = self._hooks

        def call(instance: Any, *args: Any, **kwargs: Any) -> Any:
            _, around = hooks.get((id(instance), method), (None, None))
            if around is None:
                return original(instance, *args, **kwargs)
            return around(original, args, kwargs)

        self._undo.append((cls, method, own))
        setattr(cls, method, call)

    def __enter__(self) -> Self:
        for (_, method), (target, _) in list(self._hooks.items()):
            self._patch(type(target), method)
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            cls, method, own = self._undo.pop()
            if own is None:
                delattr(cls, method)
            else:
                setattr(cls, method, own)
