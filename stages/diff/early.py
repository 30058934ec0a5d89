"""A buffer given out as it lies: the oracle takes a part of it first, where it fills it."""

from stages.trace.frames import Frame
from stages.trace.likeness import key
from stages.trace.oplog import Op, Operand
from stages.trace.sites import Site

from .order import BUFFERS
from .sides import First, Sides, hard_to_meet, named_line, number_of, trail_of


def unfinished(sides: Sides, since: int | None, until: int) -> First | None:
    """Where a buffer is given out as it is, of which the oracle takes a part first.

    Args:
        sides: The logs.
        since: The port's operation after which it is looked for; None: from the beginning.
        until: The oracle's operation until which it does more.
    """
    ours, begin = sides.port.ops, sides.port.start if since is None else since + 1
    paired = set(sides.mates.values())
    lacking = {
        one.digest: op
        for j, op in enumerate(sides.oracle.ops[: until + 1])
        if j not in paired and (since is None or j > sides.mates[since])
        for one in op.operands
    }
    for i in range(begin, len(ours)):
        for one in ours[i].operands if not sides.good(i) else ():
            if one.op >= 0 and one.digest in lacking and hard_to_meet(ours[one.op].out):
                at = left_early(sides, one, ours[i], lacking[one.digest])
                if at is not None:
                    more = lacking[one.digest]
                    why = f"it is given out here, where the oracle goes on with {more.name} ({named_line(more)})"
                    return First(number_of(sides, i), at, ours[i].sites, why)
    return None


def left_early(sides: Sides, mine: Operand, used: Op, lacking: Op) -> Site | None:
    """Where the class that filled a buffer gave it out, if the oracle does more with it in the file that fills it.

    Args:
        sides: The logs.
        mine: The buffer.
        used: The operation that it came to.
        lacking: What the oracle does with it first.
    """
    made, trail = sides.port.ops[mine.op], trail_of(sides)
    makers = [sides.oracle.ops[one.op] for one in lacking.operands if one.op >= 0 and one.digest == mine.digest]
    alike = [one for one in makers if one.sites and lacking.sites and one.sites[-1].file == lacking.sites[-1].file]
    wanted = key(made.out)
    if trail is None or not alike or made.name not in BUFFERS or made.frame is None or wanted is None:
        return None
    gave = [
        (when, Site(one.file, line, one.code.co_name))
        for one in trail.watch.frames
        if _owner(one) == _owner(made.frame) and (one.parent is None or _owner(one.parent) != _owner(one))
        for when, line, value in one.returns
        if made.when < when <= used.when and trail.holds(value, wanted, 1)
    ]
    return max(gave, key=lambda one: one[0])[1] if gave else None


def _owner(frame: Frame) -> tuple[str, type | None]:
    """What a method belongs to: (its file, the class of the object that it is called on)."""
    return frame.file, type(frame.held["self"]) if "self" in frame.held else None
