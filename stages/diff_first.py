"""The first operation that introduces an error: found backwards from the outputs, explained by its operands."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from .diff_align import Pair
from .diff_far import Far, far
from .frames import Frame
from .gates import FLOATS, Tensor, wide
from .oplog import Op, Operand, OpLog, Site, digest
from .whence import NOTHING, Place, Trail, key, site, telling

DOORS = ("cuts.py", "taps.py", "borders.py", "record.py")  # of the port, where it meets the harness
MANY = 8
STRONG = 3  # weight of an operation that both sides have, in one shape and dtype
ROUND = 16.0  # a float that is a multiple of its reciprocal is one that people write
DRAWN = frozenset({"uniform", "normal", "randint", "categorical", "bernoulli", "key", "gumbel", "truncated_normal"})
NEAR = 40  # operations before and after one, among which a function that does more shows itself
REFUSED = (ValueError, RuntimeError, TypeError, IndexError)  # what MLX raises of operands that do not fit


@dataclass
class Step:
    """One line of a comparison: an operation of the port beside the oracle's, or one that only one side has.

    Distances are measured when they are asked for: most lines of a long log nobody looks at.
    """

    port: Op | None
    oracle: Op | None
    replay: Callable[[], Tensor | None] = field(default=lambda: None, repr=False)

    @property
    def same(self) -> bool:
        """Whether both sides have it and count as equal."""
        return self.port is not None and self.oracle is not None and self.port.digest == self.oracle.digest

    @cached_property
    def total(self) -> Far | None:
        """How far apart their outputs are; None where nothing can be compared."""
        return None if self.port is None or self.oracle is None else far(self.oracle.out, self.port.out)

    @cached_property
    def _again(self) -> Tensor | None:
        return None if self.port is None or self.oracle is None or self.same else self.replay()

    @property
    def introduced(self) -> Far | None:
        """What is left of that when the port's operation is done again on the oracle's operands."""
        if self.same or self._again is None or self.oracle is None:
            return self.total if self.same else None
        return far(self.oracle.out, self._again)

    @property
    def inherited(self) -> Far | None:
        """What the port's own operands add: its output on them against its output on the oracle's."""
        if self.same or self._again is None or self.port is None:
            return self.total if self.same else None
        return far(self._again, self.port.out)


@dataclass(frozen=True)
class First:
    """Where the port first leaves the oracle.

    Attributes:
        step: Number of the line, in the comparison.
        at: The port's line that is to be looked at.
        path: The port's lines that lead to the operation, outermost first.
        why: One sentence.
    """

    step: int
    at: Site | None
    path: tuple[Site, ...]
    why: str


@dataclass
class Sides:
    """Two logs and their pairing.

    Attributes:
        pairs: From `align`.
        digest: What names a tensor: equal where two count as equal.
        loosely: Whether these are two frameworks, which draw other numbers from one seed.
        mates: The oracle's number for each of the port's operations that is paired.
        told: Everything else that its operations were told.
        known: Digests of everything that the oracle made or read.
    """

    port: OpLog
    oracle: OpLog
    pairs: list[Pair]
    digest: Callable[[Tensor], str] = digest
    loosely: bool = False
    mates: dict[int, int] = field(init=False)
    told: set[str] = field(init=False)
    known: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.mates = {i: j for i, j in self.pairs if i is not None and j is not None}
        self.told = {one.rpartition("=")[2] for op in self.oracle.ops for one in op.fixed.split(", ")}
        self.known = {op.digest for op in self.oracle.ops} | self.oracle.leaves.keys()

    @cached_property
    def unused(self) -> list[str]:
        """Keys of what the oracle does something with that the port does not, the last first."""
        paired = set(self.mates.values())
        lacking = (op for j, op in reversed(list(enumerate(self.oracle.ops))) if j not in paired)
        values = (self.value(one) for op in lacking for one in op.operands)
        return [found for value in values if value is not None and (found := key(value)) is not None]

    @cached_property
    def keys(self) -> set[str]:
        """Of every value of the oracle's, those of its operations too."""
        return self.oracle.keys | {found for op in self.oracle.ops if (found := key(op.out)) is not None}

    def good(self, i: int) -> bool:
        """Whether the oracle has what the port's operation `i` gave: at the same place, or somewhere else."""
        op, j = self.port.ops[i], self.mates.get(i)
        if self.loosely and op.name in DRAWN:
            return True
        if j is not None:
            mate = self.oracle.ops[j]
            if mate.digest == op.digest or (mate.name, mate.out.shape) == (op.name, op.out.shape):
                return mate.digest == op.digest
        return op.digest in self.known and _telling(op.out)

    def taken(self, since: int) -> list[int]:
        """Operations, from some number on, that the oracle has not, and whose results went to Python, or nowhere, by such alone."""
        used: dict[int, list[int]] = {}
        for i, op in enumerate(self.port.ops):
            for one in op.operands:
                used.setdefault(one.op, []).append(i)
        lost: set[int] = set()
        for i in range(len(self.port.ops) - 1, since - 1, -1):
            if not self.good(i) and (i not in used or any(one in lost for one in used[i])):
                lost.add(i)
        return [i for i in sorted(lost) if i not in used]

    def operands(self, i: int, j: int) -> list[tuple[int, Operand, Operand]]:
        """(place among the port's operands, the port's, the oracle's) where the two differ; equal ones pair first."""
        ours, theirs = list(enumerate(self.port.ops[i].operands)), list(self.oracle.ops[j].operands)
        left = []
        for place, mine in ours:
            same = next((one for one in theirs if one.digest == mine.digest), None)
            if same is None:
                left.append((place, mine))
            else:
                theirs.remove(same)
        pairs = []
        for place, mine in left:
            like = next((one for one in theirs if one.shape == mine.shape), theirs[0] if theirs else None)
            if like is not None:
                theirs.remove(like)
                pairs.append((place, mine, like))
        return pairs

    def used_alike(self, found: str) -> bool:
        """Whether both sides do the same with some value, somewhere."""
        return any(
            found
            in {one.digest for one in self.port.ops[i].operands} & {one.digest for one in self.oracle.ops[j].operands}
            for i, j in self.mates.items()
        )

    def mine(self, operand: Operand) -> Tensor | None:
        """The port's operand itself."""
        if operand.op >= 0 and self.port.ops[operand.op].digest == operand.digest:
            return self.port.ops[operand.op].out
        return self.port.leaves.get(operand.digest)

    def value(self, operand: Operand) -> Tensor | None:
        """The oracle's operand itself."""
        if operand.op >= 0 and self.oracle.ops[operand.op].digest == operand.digest:
            return self.oracle.ops[operand.op].out
        return self.oracle.leaves.get(operand.digest)

    def replayed(self, i: int, j: int) -> Tensor | None:
        """The port's operation on the oracle's operands; None where they do not fit it."""
        ours, theirs = self.port.ops[i], self.oracle.ops[j]
        if ours.name != theirs.name or len(ours.operands) != len(theirs.operands) or ours.again is None:
            return None
        others = {}
        for place, _, like in self.operands(i, j):
            value = self.value(like)
            if value is None:
                return None
            others[place] = value
        try:
            return ours.again(others)
        except REFUSED:
            return None


def _telling(tensor: Tensor) -> bool:
    """Whether two tensors are hardly equal by chance: many elements, not all of them one, or a float of many digits."""
    if tensor.dtype in FLOATS and np.any(np.mod(wide(tensor) * ROUND, 1)):
        return True
    return tensor.size >= MANY and bool(np.any(tensor.ravel() != tensor.ravel()[0]))


def steps(sides: Sides) -> list[Step]:
    """The comparison, line by line, in order of execution."""
    found = []
    for i, j in sides.pairs:
        ours = None if i is None else sides.port.ops[i]
        theirs = None if j is None else sides.oracle.ops[j]
        both = i is not None and j is not None
        found.append(Step(ours, theirs, partial(sides.replayed, i, j) if both else lambda: None))
    return found


def first(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]]) -> First | None:
    """The first operation that introduces an error which reaches an output; None where no operation does.

    Args:
        sides: The logs.
        outs: (the oracle's, the port's) of each output that differs.
    """
    ops = sides.port.ops
    ends = {name: _last(ops, sides.digest(mine)) if _telling(mine) else None for name, (_, mine) in outs.items()}
    roots = [i for i in ends.values() if i is not None]
    if sources := _sources(sides, roots):
        # Two implementations may come to one value by other ways, masks and tables above all: an operation that
        # both have, fed alike, says more than one that only the port has.
        return _explained(sides, max(sources, key=lambda i: (_weight(sides, i), -i)))
    # What Python finished afterwards was made by no operation: those whose results nothing else took may have led to it.
    lost = [] if roots else [i for one in sides.taken(sides.port.start) for i in _sources(sides, [one])]
    if strong := [i for i in lost if _weight(sides, i) == STRONG]:
        return _explained(sides, min(strong))
    for name, end in ends.items():
        if end is not None and (j := _last(sides.oracle.ops, digest(outs[name][0]))) is not None:
            return _stopped(sides, name, end, j)
    if found := given_out(sides, outs):
        return found
    if sides.port.start == len(ops):  # a stage that only looks at what was loaded
        lost = [i for one in sides.taken(0) for i in _sources(sides, [one])]
    return _explained(sides, min(lost)) if lost else _left_out(sides)


def _sources(sides: Sides, roots: list[int]) -> list[int]:
    """Of what leads to these by operations that the oracle has not, those that are fed by none such.

    What no array feeds, a row of numbers or of zeros, is one only where nothing else is.
    """
    ops = sides.port.ops
    bad: set[int] = set()
    todo = [i for i in roots if not sides.good(i)]
    while todo:
        at = todo.pop()
        if at not in bad:
            bad.add(at)
            todo += [one.op for one in ops[at].operands if one.op >= 0 and not sides.good(one.op)]
    fed = {i for i in bad if ops[i].operands} or bad
    return [i for i in sorted(fed) if not any(one.op in fed for one in ops[i].operands)]


def _weight(sides: Sides, i: int) -> int:
    op, j = sides.port.ops[i], sides.mates.get(i)
    mate = None if j is None else sides.oracle.ops[j]
    if not op.operands:
        return 0
    if mate is None or mate.name != op.name:
        return 1
    return STRONG if (mate.out.shape, mate.out.dtype) == (op.out.shape, op.out.dtype) else 2


def _left_out(sides: Sides) -> First | None:
    """Everything the port does is right, and the oracle does more: the first such operation, after what feeds it."""
    paired = {j: i for i, j in sides.mates.items()}
    for j, op in enumerate(sides.oracle.ops):
        fed = [paired[one.op] for one in op.operands if one.op in paired]
        if j not in paired and fed:
            last = sides.port.ops[max(fed)]
            why = f"after this the oracle goes on with {op.name} ({_line(op)}), which the port has not"
            return First(_number(sides, max(fed)), last.sites[-1] if last.sites else None, last.sites, why)
    return None


def _last(ops: list[Op], found: str) -> int | None:
    return next((i for i in range(len(ops) - 1, -1, -1) if ops[i].digest == found), None)


def _number(sides: Sides, i: int) -> int:
    return next((n for n, (ours, _) in enumerate(sides.pairs) if ours == i), -1)


def _explained(sides: Sides, i: int) -> First:
    op, j = sides.port.ops[i], sides.mates.get(i)
    at, why = op.sites[-1] if op.sites else None, ""
    if j is None or sides.oracle.ops[j].name != op.name:
        why = f"the oracle has no such {op.name} here"
        if j is not None:
            theirs = sides.oracle.ops[j]
            why += f": {theirs.name} stands in its place ({_line(theirs)})"
        told = {repr(one) for one in op.told if isinstance(one, float) and one % 1}
        return First(_number(sides, i), _said(sides, i, told - sides.told) or _unmasked(sides, i) or at, op.sites, why)
    theirs, again = sides.oracle.ops[j], sides.replayed(i, j)
    differing = sides.operands(i, j)
    parts = [_operands(sides, mine, like) for _, mine, like in differing]
    if again is not None and sides.digest(again) == theirs.digest:
        at = _handed(sides, i, differing) or at
        why = f"{op.name} is the oracle's, but not what it is given: {'; '.join(parts)}"
    elif len(op.operands) != len(theirs.operands):
        why = f"{op.name} of {len(op.operands)} arrays, the oracle's of {len(theirs.operands)}"
        at = _caller(sides.port, i) or at
        if len(op.operands) < len(theirs.operands) and None in op.told:
            at = _withheld(sides, i) or at
    elif parts:
        why = f"{op.name}, given something else: {'; '.join(parts)}"
    else:
        why = f"{op.name} of the same arrays gives something else"
    told, asked = _told(op.fixed), _told(theirs.fixed)
    if told != asked and not (again is not None and sides.digest(again) == theirs.digest):
        why += f"; told ({', '.join(sorted(told - asked))}), the oracle's ({', '.join(sorted(asked - told))})"
        at = _said(sides, i, told - asked) or at
    return First(_number(sides, i), at, op.sites, why)


def _told(fixed: str) -> set[str]:
    return {one for one in fixed.split(", ") if not one.endswith("=None")}


def _operands(sides: Sides, mine: Operand, like: Operand) -> str:
    return f"{_named(sides.port, mine)} where the oracle's is {_named(sides.oracle, like)}"


def _named(log: OpLog, operand: Operand) -> str:
    shape = "x".join(map(str, operand.shape)) or "a number"
    if operand.op < 0:
        return f"an array [{shape}] that no operation made"
    op = log.ops[operand.op]
    return f"the result [{shape}] of {op.name} ({_line(op)})"


def _line(op: Op) -> str:
    return str(op.sites[-1]) if op.sites else "no line known"


def _trail(sides: Sides) -> Trail | None:
    return None if sides.port.watch is None else Trail(sides.port.watch)


def _said(sides: Sides, i: int, told: set[str]) -> Site | None:
    """Where a number that an operation was told, otherwise than the oracle's, was computed."""
    op, trail = sides.port.ops[i], _trail(sides)
    if trail is None or op.frame is None:
        return None
    for value in op.told:
        if isinstance(value, (int, float, str)) and any(one.rpartition("=")[2] == repr(value) for one in told):
            wanted = trail.key(value)
            assert wanted is not None
            return _outside(trail.way(op.frame, op.sites[-1].line, op.when, wanted))
    return None


def _withheld(sides: Sides, i: int) -> Site | None:
    """Where an operation got nothing instead of an array."""
    op, trail = sides.port.ops[i], _trail(sides)
    if trail is None or op.frame is None:
        return None
    return _outside(trail.way(op.frame, op.sites[-1].line, op.when, NOTHING))


def _unmasked(sides: Sides, i: int) -> Site | None:
    """Where flags that an operation got should have been made into others first, as the oracle does."""
    op, trail = sides.port.ops[i], _trail(sides)
    paired = set(sides.mates.values())
    for one in op.operands if trail is not None and op.frame is not None else ():
        value = sides.mine(one)
        if value is None or value.dtype != bool:
            continue
        for j, theirs in enumerate(sides.oracle.ops):
            if j not in paired and theirs.out.shape == one.shape and one.digest in {o.digest for o in theirs.operands}:
                wrong = trail.key(value)
                assert wrong is not None
                return site(trail.handed(op.frame, op.sites[-1].line, op.when, wrong, None, meant=False))
    return None


def _outside(way: list[tuple[Frame, int, int]]) -> Site | None:
    """The last place on a way that is the port's own, not its door to the harness."""
    mine = [at for at in way if not at[0].file.endswith(DOORS)]
    return site(mine[-1]) if mine else None


def _handed(sides: Sides, i: int, differing: list[tuple[int, Operand, Operand]]) -> Site | None:
    """Where an operation that is right itself got the wrong array."""
    op, trail = sides.port.ops[i], _trail(sides)
    if trail is None or op.frame is None or not differing:
        return _caller(sides.port, i)
    _, mine, like = differing[0]
    value, right = sides.mine(mine), sides.value(like)
    wrong, wanted = trail.key(value), None if right is None else trail.key(right)
    lacking = None if like.op < 0 else sides.oracle.ops[like.op]
    if lacking is not None and mine.digest in {one.digest for one in lacking.operands}:
        # The oracle does one thing more with it. Where the port has that, only later, the two are the wrong way round.
        later = next((n for n, j in sides.mates.items() if j == like.op), None)
        if later is not None and later > i:
            return _between(sides.port.ops[later].sites, op.sites)
        same = [at for name, found, at in sides.port.forms if (name, found) == (lacking.name, mine.digest)]
        if same:
            return same[-1]
        if mine.op >= 0 and (j := sides.mates.get(i)) is not None and _line(lacking) == _line(sides.oracle.ops[j]):
            return op.sites[-1]
    if wrong is None:
        return _caller(sides.port, i)
    place = trail.handed(op.frame, op.sites[-1].line, op.when, wrong, wanted, meant=sides.used_alike(mine.digest))
    if mine.op < 0 and place[:2] == (op.frame, op.sites[-1].line):
        return _caller(sides.port, i)  # a weight: whose matrix or norm it is, is said where that is called
    return site(place)


def _between(made: tuple[Site, ...], used: tuple[Site, ...]) -> Site | None:
    """The innermost function that two operations passed through, at its line for the second."""
    found = used[0] if used else None
    for a, b in zip(made, used, strict=False):
        if (a.file, a.function) != (b.file, b.function):
            break
        found = b
        if a.line != b.line:
            break
    return found


def _gave(sides: Sides, op: Op, *, within: bool) -> Site | None:
    """The line of the port that gave out a value: where it left the port's own functions for the cut."""
    trail = _trail(sides)
    return None if trail is None else trail.given_out(op.out, DOORS, op.frame, within=within)


def _made_of(sides: Sides, trail: Trail, way: list[Place]) -> list[Place]:
    """A way, gone on while what its end computes with is something that the oracle has not."""
    known, seen = sides.keys, set[tuple[int, int, int]]()
    if way[-1][0].file.endswith(DOORS):  # written out there: what of?
        frame, line, until = way[-1]
        ways = {}
        for path, value, _ in trail.names(frame, line, until):
            found = trail.key(value)
            if len(path) == 1 and found is not None:
                longer = trail.way(frame, line, until, found)
                if not longer[-1][0].file.endswith(DOORS):
                    ways[found] = longer
        # What the oracle has not; else what it goes on with, last.
        best = next((one for one in ways if one not in known), None)
        best = best or next((one for one in sides.unused if one in ways), next(iter(ways), None))
        way = way + ways.get(best or "", [])
    while known:
        frame, line, until = way[-1]
        further = next(
            (one for one in trail.suspects(way[-1], known) if (id(one[0][0]), *one[0][1:]) not in seen), None
        )
        if further is None:
            break
        seen.add((id(frame), line, until))
        (frame, line, until), wanted = further
        seen.add((id(frame), line, until))
        way = way + trail.way(frame, line, until, wanted)
    return way


def given_out(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]]) -> First | None:
    """Outputs that no operation on arrays made: where Python first has what was given."""
    trail = _trail(sides)
    if trail is None:
        return None
    door = next((one for one in reversed(trail.watch.frames) if one.parent is None and one.returns), None)
    if door is None:
        return None
    when, line, _ = door.returns[-1]
    for name, (oracle, mine) in outs.items():
        for wanted in _said_otherwise(oracle, mine):
            if telling(mine) and wanted in sides.keys and (handed := trail.given_out(mine, DOORS)) is not None:
                return First(
                    _at(sides, handed),
                    handed,
                    (handed,),
                    f"{name} is given out here: the oracle has this value too, and goes on",
                )
            at = _outside(_made_of(sides, trail, trail.way(door, line, when, wanted)))
            if at is not None:
                return First(_at(sides, at), at, (at,), f"{name} is computed here")
    return None


def _said_otherwise(oracle: Tensor, port: Tensor) -> Iterator[str]:
    """What to look for of an output: of rows of text the first that differs, as text and as what it says; else it."""
    if port.dtype == np.uint8 and port.ndim == 2 and port.shape == oracle.shape:
        row = port[int(np.flatnonzero(np.any(port != oracle, axis=1))[0])].tobytes().rstrip(b"\0")
        with suppress(ValueError):
            if (found := key(json.loads(row))) is not None:
                yield found
        yield key(row) or ""
    elif port.dtype == np.uint8 and port.ndim == 1 and isinstance(said := _parsed(port), dict):
        told = _parsed(oracle)
        for name, value in said.items():
            if isinstance(told, dict) and told.get(name) != value and (found := key(value)) is not None:
                yield found
    elif (found := key(port)) is not None:
        yield found


def _parsed(text: Tensor) -> Any:
    with suppress(ValueError):
        return json.loads(text.tobytes())
    return None


def _caller(log: OpLog, i: int) -> Site | None:
    """The line that asked for an operation: out of functions that do nothing else, a matrix's or a norm's own."""
    path = log.ops[i].sites
    for depth in range(len(path) - 1, 0, -1):
        site, around = path[depth], path[:depth]
        others = (log.ops[n].sites for n in range(max(i - NEAR, 0), min(i + NEAR, len(log.ops))) if n != i)
        alike = [
            one
            for one in others
            if one[:depth] == around
            and [(o.file, o.function) for o in one[depth : depth + 1]] == [(site.file, site.function)]
            and one[depth].line != site.line
        ]
        if alike or path[depth - 1].file.endswith("cuts.py"):
            return site
    return path[0] if path else None


def _stopped(sides: Sides, name: str, i: int, j: int) -> First:
    """The output is one of the oracle's values, but not its last: something is left out after it, or put elsewhere."""
    op, theirs = sides.port.ops[i], sides.oracle.ops[j]
    paired = set(sides.mates.values())
    lacking = [one for n, one in enumerate(sides.oracle.ops[: j + 1]) if n not in paired]
    more = ", ".join(f"{one.name} ({_line(one)})" for one in lacking[-3:]) or f"{theirs.name} ({_line(theirs)})"
    why = f"{name} is given out here, where the oracle goes on with {more}"
    mate = sides.mates.get(i)
    # Where the oracle does it in the function that does the last thing alike, so should the port.
    last = None if mate is None or not lacking else sides.oracle.ops[mate]
    together = last is not None and _function(last) == _function(lacking[-1]) and _line(last) != _line(lacking[-1])
    return First(_number(sides, i), _gave(sides, op, within=together) or _caller(sides.port, i), op.sites, why)


def _at(sides: Sides, at: Site) -> int:
    """The first line of the comparison that an operation of this place stands in."""
    places = ((n, sides.port.ops[i].sites) for n, (i, _) in enumerate(sides.pairs) if i is not None)
    return next((n for n, sites in places if at in sites), -1)


def _function(op: Op) -> tuple[str, str] | None:
    return (op.sites[-1].file, op.sites[-1].function) if op.sites else None
