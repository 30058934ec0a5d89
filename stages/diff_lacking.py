"""Where an operation belongs that the oracle has and the port has not, between two that both have."""

from .diff_decided import left_undone, stack
from .diff_sides import Sides, named_line, trail_of
from .oplog import Op, Operand
from .opsites import Site
from .whence import DOORS

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
    same = [at for name, found, at in sides.port.forms if (name, found) == (lacking.name, mine.digest)]
    if same:
        return same[-1]
    j = sides.mates.get(i)
    if mine.op < 0 or j is None:
        return None
    if named_line(lacking) == named_line(sides.oracle.ops[j]):
        return between(sides.port.ops[mine.op].sites, op.sites) or (op.sites[-1] if op.sites else None)
    return _of_maker(sides, lacking, mine, i)


def _lacking(sides: Sides, mine: Operand, like: Operand) -> Op | None:
    """The first of the oracle's operations that lead from what the port has to what the oracle has instead."""
    paired, at = set(sides.mates.values()), like.op
    for n in range(FAR):
        if at < 0 or (n and at in paired):
            return None
        op = sides.oracle.ops[at]
        if mine.digest in {one.digest for one in op.operands}:
            return op
        at = next((one.op for one in op.operands if one.op >= 0), -1)
    return None


def _of_maker(sides: Sides, lacking: Op, mine: Operand, i: int) -> Site | None:
    """Where a function gives out what it made, if the oracle does in it what lacks: not where the other one uses it."""
    trail, made, mate = trail_of(sides), sides.port.ops[mine.op], sides.mates.get(mine.op)
    if trail is None or mate is None or i not in sides.mates:
        return None
    maker, user = sides.oracle.ops[mate], sides.oracle.ops[sides.mates[i]]
    if _shared(lacking, maker) <= _shared(lacking, user):
        return None
    others = list(stack(sides.port.ops[i].frame))
    mine_alone = [one for one in stack(made.frame) if one not in others and not one.file.endswith(DOORS)]
    wanted = trail.key(made.out)
    for frame in reversed(mine_alone):
        if frame.returns and trail.key(frame.returns[-1][2]) == wanted:
            return Site(frame.file, frame.returns[-1][1], frame.code.co_name)
    return None


def _shared(one: Op, other: Op) -> int:
    """How many calls of the oracle two of its operations have in common."""
    count = 0
    for a, b in zip(one.sites, other.sites, strict=False):
        if (a.file, a.function) != (b.file, b.function):
            break
        count += 1
        if a.line != b.line:
            break
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
