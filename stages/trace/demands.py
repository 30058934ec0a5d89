"""A shape that was demanded and refused: which number in it is wrong, and where that one was computed."""

import re
from typing import Any

from .expressions import element_of, names_in
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
    return number_at(trail, at, mine, theirs) if len(wrong) == 1 else at


def number_at(trail: Trail, at: Place, mine: list[Any], theirs: list[Any]) -> Place:
    """Where the first number of a list was computed that differs from another list's, of the same length."""
    pairs = list(zip(mine, theirs, strict=True))
    wrong = next((i for i, (a, b) in enumerate(pairs) if a != b and _number(a)), None)
    if wrong is None:
        return at
    frame, line, until = at
    number, right = mine[wrong], {a for a, b in pairs if a == b}
    element = element_of(frame.file, line, wrong)
    if element is not None:
        read = [one for one in trail.names(*at) if len(one[0]) == 1 and one[0][0] in set(names_in(element))]
        if len(read) == 1 and _number(read[0][1]):
            path, _, write = read[0]
            return trail.named(frame, path, write, until) or at
    return _made(trail, at, number, right)


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
