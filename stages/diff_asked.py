"""A function on a value's way, asked once more: with the other flag, or told what its caller was told by that name."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from .diff_calls import Given, function_of, given
from .frames import Frame
from .opsites import Site
from .whence import DOORS, Place


def asked_again(way: list[Place], right: Callable[[Any], bool]) -> tuple[Site, str] | None:
    """Where a function was called that gives what is right once it is called otherwise, and what is said of it.

    Args:
        way: The places that a wrong value came by.
        right: Whether a value is the oracle's.
    """
    for frame in dict.fromkeys(place[0] for place in way):
        called, parent = function_of(frame), frame.parent
        if called is None or parent is None or parent.file.endswith(DOORS) or len(frame.returns) != 1:
            continue
        for name, instead in _otherwise(called, frame, parent):
            try:
                value = called(**instead)
            except Exception:  # noqa: BLE001, S112 -- a function may refuse what it was never meant to get
                continue
            if right(value):
                said = f"{frame.code.co_name} gives the oracle's value with {name}={instead[name]!r}"
                return Site(parent.file, frame.asked, parent.code.co_name), said
    return None


def _otherwise(called: Callable[..., Any], frame: Frame, parent: Frame) -> Iterator[tuple[str, Given]]:
    args, above = given(frame), given(parent)
    for name, value in args.items():
        if isinstance(value, bool):
            yield name, {**args, name: not value}
        default = inspect.signature(called).parameters[name].default
        if default is value and name in above and above[name] is not value:
            yield name, {**args, name: above[name]}
