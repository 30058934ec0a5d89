"""What the port has instead of an operation of the oracle's, where the first line that differs is not the one meant."""

from stages.gates import FLOATS
from stages.trace.frames import Frame
from stages.trace.oplog import FORMS, Op
from stages.trace.sites import Site
from stages.trace.slices import Spot, governing, spot

from .decided import stack
from .order import Gap
from .sides import Sides, trail_of


def meanwhile(sides: Sides, gap: Gap) -> range:
    """The oracle's operations between the two moments of a gap."""
    first = 0 if gap.before is None else sides.mates[gap.before] + 1
    return range(first, len(sides.oracle.ops) if gap.after is None else sides.mates[gap.after])


def stranger(sides: Sides, gap: Gap) -> int | None:
    """Of a gap that begins with whole numbers or flags: arithmetic on floats with a number that the oracle has not.

    The indices of one choice may be made in several ways; what is done to the values themselves may not.
    """
    ops, theirs = sides.port.ops, {sides.oracle.ops[j].name for j in meanwhile(sides, gap)}
    if not theirs or ops[gap.port[0]].out.dtype in FLOATS or _given_otherwise(sides, gap):
        return None
    told = {one for j in meanwhile(sides, gap) for one in sides.oracle.ops[j].fixed.split(", ")}
    return next(
        (
            i
            for i in gap.port[1:]
            if ops[i].out.dtype in FLOATS
            and _floats(sides, ops[i])
            and i not in sides.mates
            and any(isinstance(one, float) and repr(one) not in told for one in ops[i].told)
            and ops[i].name not in FORMS | theirs
        ),
        None,
    )


def _given_otherwise(sides: Sides, gap: Gap) -> bool:
    """Whether a gap begins with the same operation on both sides, that is fed alike but for something."""
    i = gap.port[0]
    op, mate = sides.port.ops[i], sides.oracle.ops[sides.mates[i]] if sides.mates.get(i) in gap.oracle else None
    alike = {one.digest for one in op.operands} & {one.digest for one in mate.operands} if mate is not None else set()
    return mate is not None and mate.name == op.name and bool(alike)


def _floats(sides: Sides, op: Op) -> bool:
    given = [sides.mine(one) for one in op.operands]
    return bool(given) and all(one is not None and one.dtype in FLOATS for one in given)


def put_together(sides: Sides, gap: Gap) -> Site | None:
    """Several operations that take what one of the oracle's takes: the function around them all did it another way.

    Each of them may stand in a function that is right, and called for this by nobody else.
    """
    ops, run, taken = sides.port.ops, list[int](), set[str]()
    for i in gap.port:
        if i in sides.mates:
            break
        taken |= {one.digest for one in ops[i].operands if one.op not in run}
        run.append(i)
    paired = set(sides.mates.values())
    lacking = (sides.oracle.ops[j] for j in meanwhile(sides, gap) if j not in paired)
    if len(run) < 2 or not any(taken == {one.digest for one in op.operands} for op in lacking):
        return None
    common = [one for one in stack(ops[run[0]].frame) if all(one in stack(ops[i].frame) for i in run)]
    if not common or common[0] is ops[run[0]].frame:
        return None
    here = _at(ops[run[-1]], common[0])
    return None if here is None or here.door else here.site


def _at(op: Op, frame: Frame) -> Spot | None:
    """The statement of a call that was under way when an operation ran within."""
    when, at = op.when, op.frame
    while at is not None and at is not frame:
        when, at = at.began, at.parent
    return None if at is None else spot(frame, when)


def taken_in_turn(sides: Sides, wrong: str, right: str) -> Site | None:
    """Of two values that are exchanged and made on one line, in turn: what gave the turns, if it is in another order.

    Args:
        sides: The logs.
        wrong: Digest of what an operation got.
        right: That of what it should have got.
    """
    ours, theirs = ([_maker(log.ops, one) for one in (wrong, right)] for log in (sides.port, sides.oracle))
    if min(*ours, *theirs) < 0 or trail_of(sides) is None:
        return None
    first, second = (sides.port.ops[one] for one in ours)
    if first.sites != second.sites or (ours[0] < ours[1]) == (theirs[0] < theirs[1]):
        return None
    around = [one for one in stack(first.frame) if one in stack(second.frame)]
    here = _at(first, around[0]) if around else None
    above = None if here is None else governing(here)
    return None if above is None or above.door else above.site


def _maker(ops: list[Op], found: str) -> int:
    return next((i for i, op in enumerate(ops) if op.digest == found), -1)
