"""A number that only the oracle's operations are told: where the port took its own from what holds both."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from stages.trace.likeness import members
from stages.trace.sites import Site
from stages.trace.slices import Input, Spot, inputs, spot
from stages.trace.whence import Trail

from .choice import plain
from .instead import meanwhile
from .order import Gap
from .sides import Sides, trail_of

FLOAT = r"-?\d+\.\d+(?:e-?\d+)?|-?\d+e-?\d+"
DEEP = 2  # a number may lie so deep in what holds it
MANY = 200  # statements looked at


def picked(sides: Sides, gap: Gap) -> Site | None:
    """The line that took one of several settings, where another one has the number that the oracle is told.

    Args:
        sides: The logs.
        gap: Where the port does something else.
    """
    trail, op = trail_of(sides), sides.port.ops[gap.port[0]]
    if trail is None or op.frame is None:
        return None
    told = {one for each in sides.port.ops for one in each.told if isinstance(one, float)}
    for number in sorted(_floats(sides, gap) - told):
        for value, source in _reached(trail, spot(op.frame, op.when)):
            found = None if _has(value, number) else _taken(trail, value, source, number)
            if found is not None and not found.door:
                return found.site
    return None


def _floats(sides: Sides, gap: Gap) -> set[float]:
    """What the oracle's operations are told that take what the port's first takes."""
    found, given = set[float](), {one.digest for one in sides.port.ops[gap.port[0]].operands}
    for j in meanwhile(sides, gap):
        if not given & {one.digest for one in sides.oracle.ops[j].operands}:
            continue
        for text in re.findall(FLOAT, sides.oracle.ops[j].fixed):
            with suppress(ValueError):
                found.add(float(text))
    return {one for one in found if one not in (0.0, 1.0)}


def _reached(trail: Trail, at: Spot) -> Iterator[tuple[Any, Spot]]:
    """What statements that led to one read, floats and what is no plain value, each with where it came from."""
    todo, seen = [at], set[tuple[int, int]]()
    while todo and len(seen) < MANY:
        one = todo.pop(0)
        if one.door or (id(one.frame), one.start) in seen:
            continue
        seen.add((id(one.frame), one.start))
        for each in inputs(trail, one):
            if each.source is not None:
                todo.append(each.source)
                if isinstance(each.carrier, float) or not plain(each.carrier):
                    yield each.carrier, each.source


def _taken(trail: Trail, value: Any, at: Spot, number: float) -> Spot | None:
    """Where a value was taken out of something that has another of its kind, with the number."""
    for _ in range(MANY):
        read = inputs(trail, at)
        same = next((one for one in read if one.value is value and one.source is not None), None)
        if same is None:
            return _by(read, at) if any(_beside(one.value, value, number) for one in read) else None
        if same.source is None or same.source == at:
            return None
        at = same.source
    return None


def _beside(owner: Any, value: Any, number: float, depth: int = DEEP) -> bool:
    """Whether a value lies in something, and one of its kind that has a number next to it."""
    held = owner.values() if isinstance(owner, dict) else owner if isinstance(owner, (list, tuple)) else ()
    if any(one is value for one in held):
        return any(type(one) is type(value) and _has(one, number) for one in held)
    return depth > 1 and any(_beside(one, value, number, depth - 1) for one in held)


def _has(value: Any, number: float, depth: int = DEEP) -> bool:
    if isinstance(value, float):
        return value == number
    return depth > 0 and any(_has(one, number, depth - 1) for one in members(value))


def _by(read: list[Input], at: Spot) -> Spot:
    """The statement that made the word or number it was taken by; else the one that took it."""
    keys = (one.source for one in read if plain(one.value) and not one.given and one.source is not None)
    return next((one for one in keys if one.frame is at.frame), at)
