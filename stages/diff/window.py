"""Runs that part in Python, between two operations: read in order of execution, bounded, and decided."""

from dataclasses import replace

from stages.gates import Tensor
from stages.trace.frames import Frame
from stages.trace.sites import Site
from stages.trace.slices import Spot, idle, inputs, spot
from stages.trace.whence import Trail

from .choice import ended, raised_at, refused
from .decided import Window, stack, suspects
from .order import Gap, Order
from .sides import First, Sides, hard_to_meet, named_line, number_of, trail_of

NEXT = 6  # operations that the oracle goes on with


def parted(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]]) -> Gap | None:
    """Where the port leaves the oracle first, in order of execution."""
    order = Order(sides, frozenset(sides.digest(mine) for _, mine in outs.values()))
    found = order.gap()
    if found is not None and not found.port and (more := order.extra()) is not None and alone(sides, more):
        return more
    return found or order.gap(strictly=False)


def alone(sides: Sides, gap: Gap) -> bool:
    """Whether one side does something there that the other has nothing for."""
    if not gap.port:
        pairs = {j: i for i, j in sides.mates.items()}
        if len(gap.oracle) <= NEXT and gap.oracle[0] in pairs and _akin(sides, pairs[gap.oracle[0]], -1):
            return False
        return gap.after is not None or gap.oracle[0] not in sides.mates.values()
    given = {one.digest for one in sides.port.ops[gap.port[0]].operands}
    paired = set(sides.mates.values())
    # What is made of nothing is told from others of its kind by where it stands alone.
    lacking = (op for j, op in enumerate(sides.oracle.ops) if j not in paired and (given or j in gap.oracle))
    if any(given == {one.digest for one in op.operands} for op in lacking):
        return False
    if given & {one.digest for j in gap.oracle[:NEXT] for one in sides.oracle.ops[j].operands}:
        return False
    since = -1 if gap.before is None else sides.mates[gap.before]
    outs = (sides.port.ops[i] for i in _made_of(sides, gap.port[0]))
    if any(one.digest in gap.wanted and hard_to_meet(one.out) for one in outs):
        return False  # an output is made in another way
    return not any(_akin(sides, i, since) for i in _made_of(sides, gap.port[0]))


def _akin(sides: Sides, i: int, since: int) -> bool:
    """Whether an operation has a pair, later than some moment, and something in common with it besides its name."""
    if sides.mates.get(i, -1) <= since:
        return False
    op, mate = sides.port.ops[i], sides.oracle.ops[sides.mates[i]]
    fed = {one.digest for one in op.operands} & {one.digest for one in mate.operands}
    return bool(fed) or op.digest == mate.digest or not op.operands


def _made_of(sides: Sides, first: int) -> list[int]:
    """An operation of the port and everything that is made of it."""
    fed = {first: True}
    for i in range(first + 1, len(sides.port.ops)):
        if any(one.op in fed for one in sides.port.ops[i].operands):
            fed[i] = True
    return list(fed)


def _next(sides: Sides, gap: Gap) -> tuple[int, Spot] | None:
    """Where the oracle goes on with what a call of the port made: what that call did with it."""
    return _goes_on(sides, gap, 1, 1) or _goes_on(sides, gap, NEXT, 2)


def _goes_on(sides: Sides, gap: Gap, many: int, several: int) -> tuple[int, Spot] | None:
    fed = {one.digest for j in gap.oracle[:many] for one in sides.oracle.ops[j].operands}
    made = [i for i in range(sides.port.start, len(sides.port.ops)) if sides.port.ops[i].digest in fed]
    before = [i for i in made if gap.after is None or i <= gap.after]
    if not made:
        return None
    made = before or made[:1]
    op = sides.port.ops[made[-1]]
    last = {sides.port.ops[i].digest: sides.port.ops[i] for i in made if sides.port.ops[i].frame is op.frame}
    trail = trail_of(sides)
    if op.frame is None or trail is None or len(last) < several:
        return None
    known = {trail.key(one.out) for one in last.values()}
    until = sides.port.ops[gap.after].when if before and gap.after is not None else trail.watch.number
    following = None
    for number, _ in op.frame.lines:
        if op.when < number <= until:
            here = spot(op.frame, number, whole=True)
            gave = [value for when, _, value in op.frame.returns if here.start <= when <= here.end]
            if gave and trail.key(gave[-1]) not in known:
                continue  # it is handed on with others
            if any(here.start <= one.when < here.end for one in sides.port.ops[made[-1] + 1 :]):
                continue  # it is computed with
            if not here.door and any(trail.key(one.value) in known for one in inputs(trail, here)):
                following = here
    return None if following is None else (made[-1], following)


def decided(sides: Sides, gap: Gap) -> First | None:
    """The line that decided that the port does more or less than the oracle, where that is how they part."""
    trail, ops = trail_of(sides), sides.port.ops
    if trail is None or not alone(sides, gap):
        return None
    after = gap.after
    if gap.port:
        after = gap.port[0]
        frame = ops[gap.port[0]].frame
        alike = (i for i, j in sides.mates.items() if ops[i].digest == sides.oracle.ops[j].digest)
        if any(
            frame is one for i in alike if ops[i].out.size > 1 and i >= sides.port.start for one in stack(ops[i].frame)
        ):
            return None  # the rest of the function is the oracle's: it is this line
        why = f"the oracle does no {ops[gap.port[0]].name} here ({named_line(ops[gap.port[0]])})"
    else:
        theirs = sides.oracle.ops[gap.oracle[0]]
        why = f"here the oracle goes on with {theirs.name} ({named_line(theirs)}), which the port has not"
    window = _window(sides, trail, gap, after)
    found = suspects(window, more=bool(gap.port))
    # A statement that does nothing where the oracle does something says more than what the call goes on with.
    nothing = bool(found) and found[0].first in idle(found[0].frame.code)
    if not gap.port and not nothing and (at_once := _next(sides, gap)) is not None:
        return First(number_of(sides, at_once[0]), at_once[1].site, ops[at_once[0]].sites, f"{why}: decided here")
    if not found:
        return None
    at = after if after is not None else gap.before
    step = -1 if at is None else number_of(sides, at)
    sites = tuple(dict.fromkeys(one.site for one in found))
    return First(step, sites[0], () if at is None else ops[at].sites, f"{why}: decided here", sites)


def _window(sides: Sides, trail: Trail, gap: Gap, after: int | None) -> Window:
    """What ran from the first moment of a gap until an operation, or the end."""
    ops, frames = sides.port.ops, list[Frame]()
    for one in (gap.before, after):
        if one is not None:
            frames += [frame for frame in stack(ops[one].frame) if frame not in frames]
    if not frames:
        frames = [one for one in trail.watch.frames if one.parent is not None and one.parent.file.endswith("cuts.py")]
    since = 0 if gap.before is None else ops[gap.before].when
    until = trail.watch.number if after is None else ops[after].when
    begun = next((one.began for one in reversed(trail.watch.frames) if one.parent is None), 0)
    return Window(sides, trail, since, until, frames, begun, after is not None)


def undone(sides: Sides, gap: Gap) -> First | None:
    """The statement of a gap that does nothing, though the oracle does something there that the port has not."""
    trail, ops = trail_of(sides), sides.port.ops
    if trail is None or not gap.port:
        return None
    frames = [one for i in gap.port for one in stack(ops[i].frame)]
    window = replace(_window(sides, trail, gap, gap.after), frames=frames)
    at = next((one.site for one in window.spots() if one.first in idle(one.frame.code)), None)
    why = "nothing is done here, and what comes of it is not the oracle's"
    return None if at is None else First(number_of(sides, gap.port[0]), at, ops[gap.port[0]].sites, why)


def stopped_at(sides: Sides, *, raised: bool) -> tuple[Site, ...]:
    """Lines that led to the exception which ended the port's run, the likeliest first; none where none did.

    Args:
        sides: The logs.
        raised: Whether it came as far as the harness.
    """
    trail = trail_of(sides)
    if trail is None or not (raised or ended(trail)) or not refused(trail):
        return ()
    return raised_at(trail, sides.port.ops[-1] if len(sides.port.ops) > sides.port.start else None)
