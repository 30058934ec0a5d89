"""Standing around methods for a while: how a run is watched without the watched code knowing."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# Gets the object, the positional arguments and the call itself; returns what the caller gets.
Observer = Callable[[Any, tuple[Any, ...], Callable[[], Any]], Any]


@contextmanager
def wrapped(observers: Mapping[tuple[type, str], Observer]) -> Iterator[None]:
    """Let observers stand around methods: each gets object, arguments and the call itself, and returns its result."""
    originals = {(cls, name): vars(cls)[name] for cls, name in observers}

    def around(original: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
        def method(this: Any, *args: Any) -> Any:
            return observer(this, args, lambda: original(this, *args))

        return method

    try:
        for (cls, name), observer in observers.items():
            setattr(cls, name, around(originals[cls, name], observer))
        yield
    finally:
        for (cls, name), original in originals.items():
            setattr(cls, name, original)
