"""A function on a value's way, asked once more: with the other flag, or told what its caller was told by that name."""

from collections.abc import Callable, Iterator
from typing import Any

from stages.trace.frames import Frame
from stages.trace.sites import Site
from stages.trace.whence import DOORS, Place

from .calls import Given, function_of, given, of_its_caller


def asked_again(way: list[Place], right: Callable[[Any], bool]) -> tuple[Site, str] | None:
    """Where a function was called that gives what is right once it is called otherwise, and what is said of it.

    Args:
        way: The places that a wrong value came by.
        right: Whether a value is the oracle's.
    """
    passed = list(dict.fromkeys(place[0] for place in way))
    # And what their callers had called before, and handed to them.
    fed = [one for frame in passed if frame.parent is not None for one in frame.parent.children]
    for frame in dict.fromkeys([*passed, *fed]):
        called, parent = function_of(frame), frame.parent
        if called is None or parent is None or parent.file.endswith(DOORS) or len(frame.returns) != 1:
            continue
        for name, instead in _otherwise(frame):
            try:
                value = called(**instead)
            except Exception:  # noqa: BLE001, S112 -- a function may refuse what it was never meant to get
                continue
            if right(value):
                said = f"{frame.code.co_name} gives the oracle's value with {name}={instead[name]!r}"
                return Site(parent.file, frame.asked, parent.code.co_name), said
    return None


def _otherwise(frame: Frame) -> Iterator[tuple[str, Given]]:
    """(name, all that it is told): with one flag the other way round, or what its caller had by that name."""
    args = given(frame)
    turned = {name: not value for name, value in args.items() if isinstance(value, bool)}
    for name, value in (*turned.items(), *of_its_caller(frame).items()):
        yield name, {**args, name: value}
