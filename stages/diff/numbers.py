"""A wrong array that some operation made of numbers: with another number that was at hand it is the oracle's."""

from collections.abc import Iterator
from typing import Any

from stages.gates import Tensor
from stages.trace.frames import Frame
from stages.trace.oplog import Op
from stages.trace.sites import Site
from stages.trace.whence import Trail

from .sides import Sides, hard_to_meet, trail_of

FAR = 16  # operations that an array is followed back through
MANY = 40  # numbers that are tried in each of them
LARGE = 1 << 20  # elements of an array that is not made again so many times


def other_number(sides: Sides, made: int, wanted: str) -> Site | None:
    """The line of the operation that was told the wrong of several numbers; None where no other mends it.

    Args:
        sides: The logs.
        made: The port's operation that gave the array.
        wanted: Digest of what it should have given.
    """
    trail, way = trail_of(sides), _way(sides, made)
    for i in way if trail is not None else ():
        op = sides.port.ops[i]
        if trail is None or op.frame is None or not op.sites:
            continue
        told = {one for one in op.told if _number(one)}
        for old in told:
            for new in _at_hand(trail, op.frame, op, told):
                value = _with(sides, [one for one in way if one >= i], i, (old, new))
                if value is not None and hard_to_meet(value) and sides.digest(value) == wanted:
                    return op.sites[-1]
    return None


def _way(sides: Sides, made: int) -> list[int]:
    """The operations that led to an array, the last first; the oracle has none of their results."""
    found, todo = set[int](), [made]
    while todo and len(found) < FAR:
        at = todo.pop(0)
        if at >= 0 and at not in found and sides.port.ops[at].digest not in sides.known:
            found.add(at)
            todo += [one.op for one in sides.port.ops[at].operands]
    return [] if any(sides.port.ops[i].out.size > LARGE for i in found) else sorted(found, reverse=True)


def _with(sides: Sides, way: list[int], changed: int, swap: tuple[Any, Any]) -> Tensor | None:
    """What the last of these gives once one of them was told another number."""
    values: dict[int, Tensor] = {}
    for i in reversed(way):
        op = sides.port.ops[i]
        others = {n: values[one.op] for n, one in enumerate(op.operands) if one.op in values}
        if op.again is None or (i != changed and not others):
            continue
        try:
            values[i] = op.again(others, swap if i == changed else None)
        except Exception:  # noqa: BLE001 -- an operation may refuse a number that it was never meant to get
            return None
    return values.get(way[0])


def _at_hand(trail: Trail, frame: Frame, op: Op, told: set[Any]) -> Iterator[Any]:
    """Numbers that a call had by name when an operation ran, or by an attribute of what it had."""
    held = {one.name: one.value for one in frame.writes if one.number <= op.when}
    own = (value for one in held.values() for value in _attributes(trail, one, op.when))
    numbers = dict.fromkeys(one for one in (*held.values(), *own) if _number(one) and one not in told)
    yield from list(numbers)[:MANY]


def _attributes(trail: Trail, owner: Any, until: int) -> Iterator[Any]:
    if type(owner).__module__.startswith("port."):
        for name in getattr(owner, "__dict__", {}):
            yield trail.attribute(owner, name, until)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
