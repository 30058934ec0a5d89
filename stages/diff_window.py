"""Runs that part in Python, between two operations: read in order of execution, bounded, and decided."""

from .diff_decided import Window, stack, suspects
from .diff_order import Gap, Order
from .diff_sides import First, Sides, named_line, number_of, trail_of
from .frames import Frame
from .gates import Tensor


def parted(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]]) -> Gap | None:
    """Where the port leaves the oracle first, in order of execution."""
    order = Order(sides, frozenset(sides.digest(mine) for _, mine in outs.values()))
    return order.gap() or order.gap(strictly=False)


def alone(sides: Sides, gap: Gap) -> bool:
    """Whether one side does something there that the other has nothing for."""
    if not gap.port:
        return not set(gap.oracle) & set(sides.mates.values())
    fed: set[int] = set()
    for i in range(gap.port[0], len(sides.port.ops)):
        if i == gap.port[0] or any(one.op in fed for one in sides.port.ops[i].operands):
            if i in sides.mates:
                return False
            fed.add(i)
    return True


def decided(sides: Sides, gap: Gap) -> First | None:
    """The line that decided that the port does more or less than the oracle, where that is how they part."""
    trail, ops = trail_of(sides), sides.port.ops
    if trail is None or not alone(sides, gap):
        return None
    if gap.port:
        after: int | None = gap.port[0]
        why = f"the oracle does no {ops[gap.port[0]].name} here ({named_line(ops[gap.port[0]])})"
    else:
        after, theirs = gap.after, sides.oracle.ops[gap.oracle[0]]
        why = f"here the oracle goes on with {theirs.name} ({named_line(theirs)}), which the port has not"
    frames: list[Frame] = []
    for one in (gap.before, after):
        if one is not None:
            frames += [frame for frame in stack(ops[one].frame) if frame not in frames]
    if not frames:
        frames = [one for one in trail.watch.frames if one.parent is not None and one.parent.file.endswith("cuts.py")]
    since = 0 if gap.before is None else ops[gap.before].when
    until = trail.watch.number if after is None else ops[after].when
    found = suspects(Window(sides, trail, since, until, frames), more=bool(gap.port))
    if not found:
        return None
    at = after if after is not None else gap.before
    step = -1 if at is None else number_of(sides, at)
    sites = tuple(dict.fromkeys(one.site for one in found))
    return First(step, sites[0], () if at is None else ops[at].sites, f"{why}: decided here")
