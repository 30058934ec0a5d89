"""What Python decided between two operations: the line that made the port do more, or less, than the oracle."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from stages.trace.frames import Frame
from stages.trace.likeness import key, members, telling
from stages.trace.oplog import Op
from stages.trace.slices import Spot, bare, calling, deciding, governing, idle, inputs, spot
from stages.trace.whence import Trail

from .choice import plain, risen
from .sides import Sides

FAR = 12  # statements that a decision is followed back through
MANY = 400  # statements looked at
NEVER = 1 << 60
LINES = 500  # of one call that are looked at
ENOUGH = 30  # suspects


@dataclass
class Window:
    """What ran between two moments, in the calls that were under way at either.

    Attributes:
        since: The first moment.
        until: The other.
        frames: Those calls.
        begun: When the harness called the port.
        bounded: Whether both sides are alike again at its end.
    """

    sides: Sides
    trail: Trail
    since: int
    until: int
    frames: list[Frame]
    begun: int = 0
    bounded: bool = True

    def spots(self) -> list[Spot]:
        """Its statements, the last first; those of the port's doors left out."""
        found: dict[tuple[int, int], Spot] = {}
        for frame in self.frames:
            begin = bisect_right(frame.lines, (self.since, NEVER))
            for number, _ in frame.lines[max(begin - 1, 0) : begin + LINES]:
                if number > self.until:
                    break
                one = spot(frame, number, whole=True)
                if not one.door and one.end >= self.since:
                    found[id(frame), one.start] = one
        return sorted(found.values(), key=lambda one: -one.start)

    def inside(self, moment: int) -> bool:
        """Whether something happened in it."""
        return self.since <= moment <= self.until

    def known(self, value: Any) -> bool:
        """Whether a value is the oracle's, so that nothing went wrong on its way."""
        found = self.trail.key(value)
        if found is not None and telling(value):
            return found in self.sides.keys
        held = members(value) if isinstance(value, (list, tuple)) else []
        return bool(held) and all(self.known(one) for one in held)

    def origins(self, at: Spot, *, asked: Any = None, narrow: bool = False) -> Iterator[tuple[Spot, bool, int]]:
        """(statement, whether it gives a constant, how far back) of what led to a statement, nearest first."""
        todo: list[tuple[Spot, Any, bool, int]] = [(at, asked, narrow, 0)]
        seen: set[tuple[int, int, int]] = set()
        while todo and len(seen) < MANY:
            one, value, narrowed, depth = todo.pop(0)
            mark = (id(one.frame), one.start, id(value) if narrowed else 0)
            if mark in seen or one.door or depth > FAR:
                continue
            seen.add(mark)
            read = inputs(self.trail, one)
            if narrowed:
                read = [each for each in read if self._same(each.value, value)]
            yield one, bare(one) or (narrowed and not read), depth
            onward = (each for each in read if each.source is not None and not self.known(each.value))
            todo += [(each.source, each.value, each.given, depth + 1) for each in onward if each.source]

    def _same(self, one: Any, other: Any) -> bool:
        return one is other or (key(other) is not None and self.trail.key(one) == self.trail.key(other))


def left_undone(sides: Sides, trail: Trail, made: Op, used: Op) -> Spot | None:
    """The statement between two operations that does nothing: a `pass`, or a condition that is a constant."""
    frames = list(dict.fromkeys([*stack(made.frame), *stack(used.frame)]))
    window = Window(sides, trail, made.when, used.when, frames)
    return next((one for one in window.spots() if one.first in idle(one.frame.code)), None)


def suspects(window: Window, *, more: bool) -> list[Spot]:
    """Statements of a window that may have decided it, the likeliest first.

    Args:
        window: Where the port does something else than the oracle.
        more: Whether it does more there than the oracle; else less.
    """
    ran = window.spots()
    found = [one for one in ran if one.first in idle(one.frame.code)]
    if not more and window.bounded:
        found += [_or_condition(window, one) for one in ran if _constant(one)]
    written: list[Spot] = []
    led: list[Spot] = []
    decisions: list[Spot] = []
    governors = _above(window) if more else []
    for one in [*governors, *(one for one in ran if one not in governors)]:
        if not more and not window.bounded and _constant(one):
            above = _or_condition(window, one)
            led += [*(_led(window, above) if above is not one and not _named(one) else ()), above]
        if len(led) < ENOUGH and one.first in deciding(one.frame.code):
            (written if window.bounded else led).extend(_written(window, one))
            led += [made for made in _led(window, one) if not (more and _under_way(window, made))]
            decisions.append(one)
    novel = [one for one in led if more and _novel(window, one)]
    likely = [*found, *novel, *written, *led, *decisions]
    return list(dict.fromkeys([*(_undone(likely[0]) if likely else ()), *likely]))


def _above(window: Window) -> list[Spot]:
    """Decisions of the window without which what was under way at its end would not have been, innermost first."""
    going = [one for one in window.frames if not one.returns or one.returns[-1][0] > window.until]
    under = [spot(one, window.until) for one in sorted(going, key=lambda one: -one.began)]
    found = [one for at in under if not at.door and (one := governing(at)) is not None]
    return [one for one in found if window.since <= one.start]


def _under_way(window: Window, one: Spot) -> bool:
    """Whether a statement was not done yet at the end of a window: it did not lead there."""
    return one.start <= window.until < one.end


def _novel(window: Window, one: Spot) -> bool:
    """Whether a statement gives something made of nothing, with a number in it that the oracle never had."""
    if not bare(one):
        return False
    gave = [value for when, _, value in one.frame.returns if one.start <= when <= one.end]
    named = (write for write in one.frame.writes if write.line == one.first and one.start <= write.number <= one.end)
    parts = (part for value in (*gave, *(write.value for write in named)) for part in members(value))
    numbers = (part for part in parts if isinstance(part, float) and part % 1)
    return any(key(part) not in window.sides.keys and repr(part) not in window.sides.told for part in numbers)


def _undone(at: Spot) -> list[Spot]:
    """What did nothing in the same call before a statement, and might have done it instead: the last of it."""
    lines = idle(at.frame.code)
    before = [number for number, line in at.frame.lines if number <= at.start and line in lines] if lines else []
    return [spot(at.frame, before[-1], whole=True)] if before else []


def _named(one: Spot) -> bool:
    return any(one.start <= write.number <= one.end for write in one.frame.writes if write.line == one.first)


def _constant(one: Spot) -> bool:
    named = _named(one)
    left = any(line == one.first and one.start <= when <= one.end for when, line, _ in one.frame.returns)
    return (named or left) and bare(one) and one.first not in calling(one.frame.code)


def _or_condition(window: Window, one: Spot) -> Spot:
    """A constant, or the decision in the window that chose it."""
    above = governing(one)
    return above if above is not None and window.inside(above.start) else one


def _led(window: Window, decision: Spot) -> list[Spot]:
    """A decision and what it was made of: constants of this window, what it got last, constants of before."""
    back = list(window.origins(decision))
    within = [one for one, constant, depth in back if depth and constant and window.inside(one.start)]
    here = [_or_condition(window, one) for one in within if bare(one)]
    recent = sorted(
        (one for one, constant, depth in back if depth == 1 and window.inside(one.start)),
        key=lambda one: -one.start,
    )
    before = [one for one, constant, depth in back if depth and constant and window.begun <= one.start < window.since]
    made = [one for one, _, depth in back if depth == 1 and window.begun <= one.start < window.since]
    return [*here, *recent, *within, *before, *made]


def _written(window: Window, decision: Spot) -> list[Spot]:
    """Where callers wrote down what a decision was given."""
    given = (risen(window.trail, one) for one in inputs(window.trail, decision) if one.given and plain(one.value))
    return [found[0] for found in given if found is not None and found[1] and found[0].start >= window.begun]


def stack(frame: Frame | None) -> Iterable[Frame]:
    """A call and those around it."""
    while frame is not None:
        yield frame
        frame = frame.parent
