"""Parameters by the names that the port loaded them under; and where one got bound to the name of another."""

from collections.abc import Iterator
from typing import Any

from stages.trace.frames import Frame, reads, spans
from stages.trace.likeness import members
from stages.trace.oplog import Operand
from stages.trace.sites import Site
from stages.trace.whence import Trail, latest, site

from .sides import Sides, trail_of

DEEP = 3  # a parameter may lie so deep in what uses it


def name_of(sides: Sides, operand: Operand) -> str:
    """What a parameter is called where the port got it, a word that lies beside it in an object; else nothing."""
    trail, leaf = trail_of(sides), sides.port.leaves.get(operand.digest)
    if trail is None or operand.op >= 0 or leaf is None or (wanted := trail.key(leaf)) is None:
        return ""
    for value in _objects(trail.watch.frames):
        held = members(value)
        if any(getattr(one, "shape", None) is not None and trail.key(one) == wanted for one in held):
            words = [one for one in held if isinstance(one, str)]
            if len(words) == 1:
                return words[0]
    return ""


def bound_at(sides: Sides, i: int, mine: Operand, like: Operand) -> Site | None:
    """Where a parameter was bound to a name that is in the right one's name, not in its own; None where none was."""
    op, trail = sides.port.ops[i], trail_of(sides)
    own, right = (set(name_of(sides, one).split(".")) for one in (mine, like))
    if trail is None or own == {""} or right == {""}:
        return None
    wrong = trail.key(sides.mine(mine)) or ""
    for frame, line, until in trail.frames_of(op.frame):
        at = line or (op.sites[-1].line if op.sites else 0)
        first, last = spans(frame.code).get(at, (at, at))
        for path in (one for n in range(first, last + 1) for one in reads(frame.code).get(n, ())):
            write = latest(frame, path[0], until)
            if write is None or len(path) == 1 or path[-1] not in right - own:
                continue
            value = write.value
            for name in path[1:]:
                value = trail.attribute(value, name, until)
            if _holds(trail, value, wrong) and (place := trail.named(frame, path, write, until)) is not None:
                return site(place)
    return None


def _holds(trail: Trail, value: Any, wanted: str, depth: int = DEEP) -> bool:
    """Whether a value is in an object, also in one that can be called: a matrix, a norm."""
    if trail.key(value) == wanted:
        return True
    mine = type(value).__module__.startswith("port.") and not isinstance(value, type)
    held = getattr(value, "__dict__", {}).values() if mine else ()
    return depth > 0 and any(_holds(trail, one, wanted, depth - 1) for one in held)


def _objects(frames: list[Frame]) -> Iterator[Any]:
    seen: set[int] = set()
    for frame in frames:
        for value in (*(one.value for one in frame.writes), *(value for _, _, value in frame.returns)):
            if type(value).__module__.startswith("port.") and id(value) not in seen:
                seen.add(id(value))
                yield value
