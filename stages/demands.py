"""A shape that was demanded and refused: which number in it is wrong, and where that one was computed."""

import re
from typing import Any

from .whence import Place, Trail

SHAPE = re.compile(r"\[([\d, ]+)\]")


def demanded_at(trail: Trail, at: Place, demanded: Any, message: str) -> Place:
    """Where the number of a demanded shape that is not the file's was computed; the place itself where none is known.

    Args:
        trail: Of the port's loading.
        at: Where the shape was put together.
        demanded: The shape.
        message: What refused it: it has the file's shape too.
    """
    shapes = [[int(one) for one in found.split(",") if one.strip()] for found in SHAPE.findall(message)]
    mine = list(demanded) if isinstance(demanded, (list, tuple)) else []
    theirs = next((one for one in shapes if len(one) == len(mine) and one != mine), None)
    if theirs is None:
        return at
    wrong = [a for a, b in zip(mine, theirs, strict=True) if a != b]
    right = {a for a, b in zip(mine, theirs, strict=True) if a == b}
    return _made(trail, at, wrong[0], right) if len(wrong) == 1 else at


def _made(trail: Trail, at: Place, number: int, right: set[int]) -> Place:
    """Back along a number, through what only hands it on; of what it was computed of, along the only part there is."""
    seen: list[Place] = []
    while at not in seen:
        seen.append(at)
        frame, line, until = at
        given = [(path, value, write) for path, value, write in trail.names(*at) if _holds(value, number)]
        if not given:
            called = [one for one in trail.calls(*at) if _holds(one.returns[-1][2], number)]
            if called:
                until, line, _ = called[0].returns[-1]
                at = (called[0], line, until)
                continue
            parts = {
                path: (value, write)
                for path, value, write in trail.names(*at)
                if _number(value) and value > 1 and value not in right and not (number % value and value % number)
            }
            if len(parts) != 1:
                return at
            ((path, (number, write)),) = parts.items()
            given = [(path, number, write)]
        path, _, write = given[0]
        further = trail.named(frame, path, write, until)
        if further is None:
            return at
        at = further
    return seen[-1]


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _holds(value: Any, number: int) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_number(one) and one == number for one in value)
    return _number(value) and value == number
