"""A value of an earlier round: an operation takes again what it took rightly before, though the right one is there.

Each value of such a port is the oracle's, only late: no operation makes anything wrong until one is fed by the wrong
round. What it should have been fed by the port has computed too.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator

from stages.gates import Tensor
from stages.trace.likeness import key
from stages.trace.oplog import Op, Operand
from stages.trace.sites import Site
from stages.trace.whence import DEPTH, DOORS, Place, Trail, site

from .sides import First, Sides, hard_to_meet, named_line, number_of, trail_of


def stale(sides: Sides, until: int | None) -> First | None:
    """Where the port kept a value for a later round though the right one was at hand; None where it did not.

    Args:
        sides: The logs.
        until: The first operation of the port that is otherwise for good: what comes later follows from it.
    """
    trail = trail_of(sides)
    if trail is None:
        return None
    for i, mine, like in _late(sides, until):
        op, value, right = sides.port.ops[i], sides.mine(mine), sides.value(like)
        if value is None or right is None or op.frame is None or not op.sites:
            continue
        way = _way(trail, (op.frame, op.sites[-1].line, op.when), trail.key(value) or "")
        at = _at_hand(trail, way, key(right) or "")
        if at is not None:
            why = (
                f"{op.name} ({named_line(op)}) takes again what it took before; what the oracle's takes is at hand here"
            )
            return First(number_of(sides, i), at, op.sites, why)
    return None


def _late(sides: Sides, until: int | None) -> Iterator[tuple[int, Operand, Operand]]:
    """(operation, what it takes again, what the oracle has instead) in order."""
    ours, theirs = sides.port.ops, sides.oracle.ops
    alike = {i for i, j in sides.mates.items() if ours[i].digest == theirs[j].digest}
    when = {sides.mates[i]: i for i in alike}  # the port may come to it, a round too late
    others: dict[Hashable, list[tuple[int, Operand]]] = defaultdict(list)
    for j, op in enumerate(theirs):
        for place, one in enumerate(op.operands):
            others[_but(op, place)].append((when.get(j, len(ours)), one))
    had = {op.digest: n for n, op in reversed(list(enumerate(ours)))}
    took: set[tuple[Site, int, str]] = set()
    for i in range(sides.port.start, len(ours) if until is None else until + 1):
        op = ours[i]
        if not op.sites:
            continue
        if i in alike:
            took |= {(op.sites[-1], place, one.digest) for place, one in enumerate(op.operands)}
            continue
        for place, one in enumerate(op.operands):
            if (op.sites[-1], place, one.digest) in took and _telling(sides.mine(one)):
                for later, like in others[_but(op, place)]:
                    at_hand = had.get(like.digest, i) < i or like.digest in sides.port.leaves
                    if later > i and like.digest != one.digest and at_hand:
                        yield i, one, like


def _but(op: Op, place: int) -> Hashable:
    """What two operations have in common that are alike in all but one of their operands."""
    rest = tuple(one.digest for n, one in enumerate(op.operands) if n != place)
    return op.name, place, op.out.shape, rest


def _telling(value: Tensor | None) -> bool:
    return value is not None and value.dtype != bool and hard_to_meet(value)  # flags are often alike


def _way(trail: Trail, at: Place, wanted: str) -> list[Place]:
    """A value's way back; of several names that hold it by the one that got it last, as the others may be of before."""
    way: list[Place] = []
    step: Place | None = at
    while step is not None and step not in way:
        way.append(step)
        step = _before(trail, step, wanted)
    return way


def _before(trail: Trail, at: Place, wanted: str) -> Place | None:
    frame, _, until = at
    for depth in (0, DEPTH):  # the value itself, before what has it in it
        for call in trail.calls(*at):
            for when, line, value in reversed(call.returns):
                if when <= until and trail.holds(value, wanted, depth):
                    return call, line, when
    read = sorted(trail.names(*at), key=lambda one: -one[2].number)
    for depth in (0, DEPTH):
        for path, value, write in read:
            if trail.holds(value, wanted, depth) and (place := trail.named(frame, path, write, until)) is not None:
                return place[0], place[1], place[2] - 1  # a line may give a name what it has already
    return None


def _at_hand(trail: Trail, way: list[Place], right: str) -> Site | None:
    """On a value's way the earliest place of the port's own at which a name had another one."""
    had = [
        (frame, line, until)
        for frame, line, until in way
        if not frame.file.endswith(DOORS)
        and any(one.number <= until and trail.key(one.value) == right for one in frame.writes)
    ]
    return site(had[-1]) if had else None
