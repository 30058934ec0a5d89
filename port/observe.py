"""Standing around methods for a while: how a run is watched without the watched code knowing."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

# Gets the object, the positional arguments and the call itself; returns what the caller gets.
Observer = Callable[[Any, tuple[Any, ...], Callable[[], Any]], Any]


@contextmanager
def wrapped(observers: Mapping[tuple[Any, str], Observer]) -> Iterator[None]:
    """Let observers stand around methods: each gets object, arguments and the call itself, and returns its result.

    A module's function counts as a method of its first argument.
    """
    originals = {(cls, name): vars(cls)[name] for cls, name in observers}

    def around(original: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
        def method(this: Any, *args: Any, **named: Any) -> Any:
            return observer(this, args, lambda: original(this, *args, **named))

        return method

    try:
        for (cls, name), observer in observers.items():
            setattr(cls, name, around(originals[cls, name], observer))
        yield
    finally:
        for (cls, name), original in originals.items():
            setattr(cls, name, original)


@contextmanager
def drawing(log: list[dict[str, Any]]) -> Iterator[None]:
    """Note every draw from MLX's generator: kind, shape, dtype, bounds, and the digest of its values, in order."""

    def noted(kind: str, original: Callable[..., mx.array]) -> Callable[..., mx.array]:
        def draw(*args: Any, **named: Any) -> mx.array:
            result = original(*args, **named)
            values = np.array(result)
            bounds = [int(bound) for bound in args[:2]] if kind == "randint" else []
            facts = {"kind": kind, "shape": list(values.shape), "dtype": str(values.dtype), "bounds": bounds}
            log.append({**facts, "sha256": hashlib.sha256(values.tobytes()).hexdigest()[:16]})
            return result

        return draw

    originals = {
        kind: getattr(mx.random, kind) for kind in ("randint", "categorical", "uniform", "bernoulli", "gumbel")
    }
    try:
        for kind, original in originals.items():
            setattr(mx.random, kind, noted(kind, original))
        yield
    finally:
        for kind, original in originals.items():
            setattr(mx.random, kind, original)
