"""A loop that makes a round more than the oracle's: what decided not to leave it."""

from stages.trace.frames import Frame
from stages.trace.slices import Spot, inputs, leaving
from stages.trace.whence import Trail

from .decided import Window, stack
from .order import Gap
from .sides import First, Sides, named_line, number_of, trail_of


def round_more(sides: Sides, gap: Gap) -> First | None:
    """The line that let the port do again what it did in rounds that are alike, and the oracle does no more.

    Args:
        sides: The logs.
        gap: Where the port first does something that the oracle has not.
    """
    trail, ops, theirs = trail_of(sides), sides.port.ops, sides.oracle.ops
    if trail is None or not gap.port or gap.before is None:
        return None
    more = ops[gap.port[0]]
    rounds = [i for i, j in sides.mates.items() if ops[i].digest == theirs[j].digest and i < gap.port[0]]
    rounds = [i for i in rounds if (ops[i].name, ops[i].sites) == (more.name, more.sites)]
    if not rounds:
        return None
    mate = theirs[sides.mates[rounds[-1]]]
    if sum((one.name, one.sites) == (mate.name, mate.sites) for one in theirs) > len(rounds):
        return None
    frames = list(dict.fromkeys([*stack(ops[gap.before].frame), *stack(more.frame)]))
    on = _went_on(Window(sides, trail, ops[gap.before].when, more.when, frames), ops[gap.before].frame, more.frame)
    why = f"{more.name} ({named_line(more)}) is done {len(rounds)} times by the oracle and once more here: decided here"
    return None if on is None else First(number_of(sides, gap.port[0]), on.site, more.sites, why)


def _went_on(window: Window, before: Frame | None, after: Frame | None) -> Spot | None:
    """Of a run that goes on where the oracle ends: what decided not to end, between two operations.

    It is looked for in the calls that both belong to, inside out: a condition under which they are left.
    """
    common = [one for one in stack(after) if one in list(stack(before))]
    ran = window.spots()
    conditions = (one for frame in common for one in ran if one.frame is frame and one.first in leaving(frame.code))
    return next((_flag(window.trail, one) for one in conditions), None)


def _flag(trail: Trail, at: Spot) -> Spot:
    """The statement that made the flag which a condition reads: where it got its name, if no call gave it."""
    found = next((one for one in inputs(trail, at) if isinstance(one.value, bool)), None)
    if found is None:
        return at
    flag, name = found.value, found.name
    while found is not None and found.source is not None and not found.source.door:
        at, carrier = found.source, found.carrier
        read = inputs(trail, at)
        held = (one for one in read if carrier is not flag and one.value is carrier)
        named = (one for one in read if one.value is flag and one.name in ("", name))
        among = (
            one
            for one in read
            if not one.name and isinstance(one.value, tuple) and any(each is flag for each in one.value)
        )
        found = next((one for some in (held, named, among) for one in some), None)
    return at
