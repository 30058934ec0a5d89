"""Where an operation belongs that the oracle has and the port has not, between two that both have."""

from stages.gates import FLOATS
from stages.trace.oplog import Op, Operand
from stages.trace.sites import Site
from stages.trace.whence import DOORS, site

from .decided import left_undone, stack
from .early import left_early
from .sides import Sides, last_of, trail_of

SPREAD = "broadcast_to"  # other operations do it unasked: it lacks nowhere
FAR = 8  # operations of the oracle's that may lack one after the other


def lacking_at(sides: Sides, i: int, mine: Operand, like: Operand) -> Site | None:
    """Of an operation that got something before the oracle's last operations on it: where these belong.

    Args:
        sides: The logs.
        i: The port's operation.
        mine: What it got.
        like: What the oracle's got.
    """
    op, lacking = sides.port.ops[i], _lacking(sides, mine, like)
    if lacking is None:
        return None
    # Where the port has it, only later, the two are the wrong way round.
    later = next((n for n, j in sides.mates.items() if j == like.op), None)
    if later is not None and later > i:
        return between(sides.port.ops[later].sites, op.sites)
    trail = trail_of(sides)
    if trail is not None and mine.op >= 0 and like.op not in sides.mates.values():
        idle = left_undone(sides, trail, sides.port.ops[mine.op], op)
        if idle is not None and not idle.door:
            return idle.site
        if (gave := left_early(sides, mine, op, lacking)) is not None:
            return gave
    same = [at for name, found, at in sides.port.forms if (name, found) == (lacking.name, mine.digest)]
    if same:
        return same[-1]
    return _beside(sides, i, lacking, mine)


def _beside(sides: Sides, i: int, lacking: Op, mine: Operand) -> Site | None:
    """With what made the value or with what uses it: the one that the oracle's own calls have it nearer to.

    As near to either, it is where a function gave the value back as it got it, or where its form was changed last.
    What takes more than the value, and weights, lacks this too, and is not at once known to be left out there.
    """
    j, mate = sides.mates.get(i), sides.mates.get(mine.op, last_of(sides.oracle.ops, mine.digest))
    others = [sides.value(one) for one in lacking.operands if one.digest != mine.digest]
    if (
        lacking.name == SPREAD
        or mine.op < 0
        or j is None
        or mate is None
        or any(one is None or one.dtype not in FLOATS for one in others)
    ):
        return None
    made, used = sides.port.ops[mine.op], sides.port.ops[i]
    near = _shared(lacking, sides.oracle.ops[j]) - _shared(lacking, sides.oracle.ops[mate])
    if near > 0:
        return between(made.sites, used.sites) or (used.sites[-1] if used.sites else None)
    if lacking.sites == sides.oracle.ops[mate].sites:
        return None  # one function asks for both there, here perhaps none
    if near < 0:
        return _given_out(sides, made, used)
    trail = trail_of(sides)
    if trail is not None and used.frame is not None:
        start = used.frame, used.sites[-1].line, used.when
        if (place := trail.given_back(start, trail.key(made.out) or "")) != start:
            return site(place)
    around = {(one.file, one.function) for one in (*made.sites, *used.sites)}
    forms = (at for _, found, at in sides.port.forms if found == mine.digest and (at.file, at.function) in around)
    return next(reversed(list(forms)), None)


def _lacking(sides: Sides, mine: Operand, like: Operand) -> Op | None:
    """The first of the oracle's operations that lead from what the port has to what the oracle has instead."""
    paired, todo, seen = set(sides.mates.values()), [like.op], set[int]()
    while todo and len(seen) < FAR:
        at = todo.pop(0)
        if at < 0 or at in seen or (seen and at in paired):
            continue
        seen.add(at)
        op = sides.oracle.ops[at]
        if mine.digest in {one.digest for one in op.operands}:
            return op
        todo += [one.op for one in op.operands]
    return None


def _given_out(sides: Sides, made: Op, used: Op) -> Site | None:
    """Where the outermost function that made a value, and does not use it, gives it out."""
    trail, others = trail_of(sides), list(stack(used.frame))
    for frame in reversed(list(stack(made.frame))) if trail is not None else ():
        mine = frame not in others and not frame.file.endswith(DOORS) and frame.returns
        if trail is not None and mine and trail.holds(frame.returns[-1][2], trail.key(made.out) or "", 1):
            return Site(frame.file, frame.returns[-1][1], frame.code.co_name)
    return None


def _shared(one: Op, other: Op) -> int:
    """How far into the oracle two of its operations were asked for by the same functions, and lines."""
    count = 0
    for a, b in zip(one.sites, other.sites, strict=False):
        if (a.file, a.function) != (b.file, b.function):
            break
        count += 1
        if a.line != b.line:
            break
        count += 1
    return count


def between(made: tuple[Site, ...], used: tuple[Site, ...]) -> Site | None:
    """The innermost function that two operations passed through, at its line for the second."""
    found = used[0] if used else None
    for a, b in zip(made, used, strict=False):
        if (a.file, a.function) != (b.file, b.function):
            break
        found = b
        if a.line != b.line:
            break
    return found
