"""Which line chose a value: of two that were at hand the wrong one, or a number that was made of right ones."""

from dataclasses import dataclass, field
from typing import Any

from stages.trace.frames import Frame
from stages.trace.likeness import members
from stages.trace.oplog import Op
from stages.trace.sites import Site
from stages.trace.slices import Input, Spot, bare, governing, inputs, raising, spot, written
from stages.trace.whence import DOORS, Trail

DEEP = 2  # a value may lie so deep in what a statement reads
LONG = 40  # statements on a way
NOTHING_KNOWN = object()  # a value that is looked for no more


def chosen(trail: Trail, op: Op, maker: Op | None, wrong: str, right: str) -> Site | None:
    """Where a value was taken though the right one was at hand: the earliest such place on its way to an operation."""
    found: Site | None = None
    if op.frame is None:
        return None
    at: Spot | None = spot(op.frame, op.when)
    for _ in range(LONG):
        if at is None or at.door or (maker is not None and at.frame is maker.frame and at.start <= maker.when):
            break
        read = inputs(trail, at)
        if maker is not None and at.done and at.start <= maker.when and _named(trail, read, right):
            break  # made here of the right one
        near = any(holds(trail, one.value, right, DEEP) for one in [*read, *_others(at)])
        if near and at.frame is not op.frame:
            found = at.site
        onward = next((one for one in _carrying(trail, read, wrong) if one.source is not None), None)
        both = onward is not None and isinstance(onward.value, dict) and holds(trail, onward.value, right, DEEP)
        if onward is None or (near and onward.value is not onward.carrier) or both:
            break  # picked here out of what has both
        at = onward.source
    return found


def _named(trail: Trail, read: list[Input], wanted: str) -> bool:
    return any(one.name and trail.key(one.value) == wanted for one in read)


def _others(at: Spot) -> list[Input]:
    """What else the names of its call had when a statement began."""
    last = {one.name: one.value for one in at.frame.writes if one.number <= at.start}
    return [Input(value, None) for value in last.values()]


def _carrying(trail: Trail, read: list[Input], wanted: str) -> list[Input]:
    """What brought a value into a statement: the value itself before what holds it, calls last."""
    direct = [one for one in read if trail.key(one.value) == wanted]
    return direct or [one for one in read if holds(trail, one.value, wanted, DEEP)]


def holds(trail: Trail, value: Any, wanted: str, depth: int) -> bool:
    """Whether a value is the one that is wanted, or has it in it, as a member or as what a dataclass keeps."""
    if trail.key(value) == wanted:
        return True
    return depth > 0 and any(holds(trail, one, wanted, depth - 1) for one in members(value))


def counted(trail: Trail, op: Op, value: Any) -> Spot | None:
    """Where a number that an operation was told was computed: what leads there from what the harness gave is right."""
    if op.frame is None:
        return None
    at = spot(op.frame, op.when)
    if any(type(one) is type(value) and one == value for one in written(at)):
        return at
    begun = min(one.began for one, _, _ in trail.frames_of(op.frame) if not one.file.endswith(DOORS))
    way = _Count(trail, begun, at, value)
    return next((found for _ in range(LONG) if (found := way.step()) is not None), way.at)


@dataclass
class _Count:
    """A number on its way back: `begun` is when the harness called, `at` the statement that it has come to.

    Attributes:
        value: The number, or `NOTHING_KNOWN`: a decision is followed instead.
        carrier: What has the number in it, where something has.
        copied: Where it was named anew.
        gave: The last function that gave it.
    """

    trail: Trail
    begun: int
    at: Spot
    value: Any
    carrier: Any = None
    copied: list[Spot] = field(default_factory=list)
    gave: Spot | None = None
    seen: set[Spot] = field(default_factory=set)

    def step(self) -> Spot | None:
        """Go back one statement; the one that is to be looked at, where there is none before it."""
        self.seen.add(self.at)
        read = [one for one in inputs(self.trail, self.at) if one.source is not None]
        same = _alike(read, self.value, self.carrier)
        onward = [one for one in same if one.source and one.source not in self.seen and not one.source.door]
        if onward:
            return self._handed(max(onward, key=lambda one: one.written))
        if same and (self.copied or self.gave):
            return self.gave or self.copied[0]  # it is what the harness gave: it should have been changed on its way
        return self._made_of(read)

    def _handed(self, best: Input) -> Spot | None:
        if best.source is None or (self.gave is not None and best.value is not best.carrier):
            return self.gave  # an object has it from long ago
        if best.given and plain(best.carrier) and not _alike(inputs(self.trail, best.source), self.value, None):
            return best.source  # written there as it is
        if not best.given:
            self.copied.append(best.source)
        if best.source.frame.parent is self.at.frame:
            self.gave = best.source
        self.at, self.carrier = best.source, best.carrier if best.given and not plain(best.carrier) else None
        return None

    def _made_of(self, read: list[Input]) -> Spot | None:
        """Computed here: of something that a caller wrote down, or else of what was computed last, if not here."""
        made = [(one, found) for one in read if plain(one.value) and (found := risen(self.trail, one)) is not None]
        # What the model was loaded with is read rightly elsewhere.
        made = [(one, found) for one, found in made if found[0].start >= self.begun]
        for one, (where, constant) in made:
            if constant and one.value is not None:
                return where
        made = [(one, found) for one, found in made if found[0] not in self.seen]
        if made:
            best, (self.at, _) = max(made, key=lambda one: one[0].written)
            self.value, self.carrier = best.value if self.value is not NOTHING_KNOWN else self.value, None
            return None
        above = governing(self.at) if bare(self.at) else None
        if above is None or above in self.seen:
            return self.at
        self.at, self.value, self.carrier = above, NOTHING_KNOWN, None
        return None


def _alike(read: list[Input], value: Any, carrier: Any) -> list[Input]:
    """Of what a statement read, what has a number: the thing itself, an equal number, or what holds one."""
    if value is NOTHING_KNOWN:
        return []
    wanted = (value, -value) if _negated(value) else (value,)
    for found in (
        [one for one in read if carrier is not None and one.value is carrier],
        [one for one in read if any(_has(one.value, each, 0) for each in wanted)],
        [one for one in read if any(_within(one.value, each) for each in wanted)],
    ):
        if found:
            return found
    return []


def risen(trail: Trail, one: Input) -> tuple[Spot, bool] | None:
    """Where a value was made that callers handed down, and whether it is written there; None: the harness gave it."""
    for _ in range(LONG):
        if one.source is None or one.source.door:
            return None
        if not one.given:
            return one.source, False
        above = [
            each for each in inputs(trail, one.source) if each.value is one.carrier or _within(each.value, one.value)
        ]
        if not above:
            return one.source, True
        alike = next((each for each in above if each.name == one.name), None)
        if alike is None and (one.value is None or isinstance(one.value, bool)):
            return one.source, True  # others are nothing, too
        one = alike or above[-1]
    return None


def _within(value: Any, wanted: Any, depth: int = DEEP) -> bool:
    if depth and isinstance(value, (list, tuple, dict)):
        return any(_within(one, wanted, depth - 1) for one in members(value))
    return _has(value, wanted, 0)


def plain(value: Any) -> bool:
    """Whether a value is a number, a word, or nothing."""
    return isinstance(value, (bool, int, float, str)) or value is None


def _has(value: Any, wanted: Any, depth: int = DEEP) -> bool:
    if plain(value):
        return type(value) is type(wanted) and value == wanted
    if wanted is NOTHING_KNOWN or depth == 0:
        return False
    return any(_has(one, wanted, depth - 1) for one in members(value))


def _negated(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value != 0


def raised_at(trail: Trail, before: Op | None) -> tuple[Site, ...]:
    """Lines of the port that led to its last exception, innermost first: the decision for it before the raising."""
    failed = [one for one in trail.watch.frames if one.raised is not None and not one.file.endswith("cuts.py")]
    if not failed:
        return ()
    inner = _innermost(failed)
    depart = None if before is None else _parting(before.frame, inner)
    found = [] if depart is None else [depart]
    lines: list[Site] = []
    frame: Frame | None = inner
    while frame is not None and frame.raised is not None:
        at = spot(frame, frame.raised[0])
        if not at.door:
            decision = governing(at)
            found += [decision.site] if decision is not None else []
            lines.append(at.site)
        frame = frame.parent
    return tuple(dict.fromkeys([*found, *lines]))


def refused(trail: Trail) -> bool:
    """Whether the port's last exception is its own, raised by a statement of it."""
    inner = failed_in(trail)
    return inner is not None and inner.raised is not None and inner.raised[1] in raising(inner.code)


def failed_in(trail: Trail) -> Frame | None:
    """The call of the port's that its last exception came from."""
    failed = [one for one in trail.watch.frames if one.raised is not None and not one.file.endswith("cuts.py")]
    return _innermost(failed) if failed else None


def ended(trail: Trail) -> bool:
    """Whether an exception ended a call that the harness made, though it may have been expected."""
    return any(
        one.raised is not None and one.returns and one.returns[-1][0] == one.raised[0] + 1
        for one in trail.watch.frames
        if not one.file.endswith(DOORS) and one.parent is not None and one.parent.file.endswith(DOORS)
    )


def _innermost(failed: list[Frame]) -> Frame:
    last = max(failed, key=lambda one: one.raised[0] if one.raised else 0)
    while True:
        began = last.lines[-1][0] if last.lines else last.began
        inner = [one for one in last.children if one.raised is not None and one.raised[0] >= began]
        if not inner:
            return last
        last = inner[-1]


def _parting(before: Frame | None, raising: Frame) -> Site | None:
    """Where the call that an operation and an exception have in common was at the exception."""
    around = set()
    at = before
    while at is not None:
        around.add(id(at))
        at = at.parent
    inside: Frame | None = raising
    while inside is not None and id(inside) not in around:
        inside = inside.parent
    if inside is None or inside is raising or inside.raised is None:
        return None
    here = spot(inside, inside.raised[0])
    return None if here.door else here.site
