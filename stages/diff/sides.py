"""Two logs beside each other: their pairs, what counts as equal in them, and an operation done again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from stages.gates import FLOATS, Tensor, wide
from stages.trace.frames import Frame
from stages.trace.likeness import key
from stages.trace.oplog import Op, Operand, OpLog, digest
from stages.trace.sites import Site
from stages.trace.whence import Trail

from .align import Pair
from .far import Far, far

REFUSED = (ValueError, RuntimeError, TypeError, IndexError)  # what MLX raises of operands that do not fit
# Of random numbers two frameworks have others from one seed.
DRAWN = frozenset({"uniform", "normal", "randint", "categorical", "bernoulli", "key", "gumbel", "truncated_normal"})
MANY = 8
ROUND = 16.0  # a float that is a multiple of its reciprocal is one that people write


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
        suspects: Other lines that may be it, the likeliest first.
        sure: Whether an operation of the port's is otherwise; else only what the oracle does more is known.
    """

    step: int
    at: Site | None
    path: tuple[Site, ...]
    why: str
    suspects: tuple[Site, ...] = ()
    sure: bool = True


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
        inside: The port's operations that are part of a function whose result is the oracle's.
        results: Of the port's calls, whether what each gave is.
    """

    port: OpLog
    oracle: OpLog
    pairs: list[Pair]
    digest: Callable[[Tensor], str] = digest
    loosely: bool = False
    mates: dict[int, int] = field(init=False)
    told: set[str] = field(init=False)
    known: set[str] = field(init=False)
    inside: set[int] = field(default_factory=set)
    results: dict[Frame, bool] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.mates = {i: j for i, j in self.pairs if i is not None and j is not None}
        self.told = {one.rpartition("=")[2] for op in self.oracle.ops for one in op.fixed.split(", ")}
        self.known = {op.digest for op in self.oracle.ops} | self.oracle.leaves.keys()

    def misses(self, shape: tuple[int, ...]) -> bool:
        """Whether the oracle read an array of this shape that the port nowhere has."""
        mine = {op.digest for op in self.port.ops} | self.port.leaves.keys()
        return any(tensor.shape == shape and found not in mine for found, tensor in self.oracle.leaves.items())

    @cached_property
    def made(self) -> set[str]:
        """Digests of everything that the port made."""
        return {op.digest for op in self.port.ops}

    @cached_property
    def drawn(self) -> set[int]:
        """Of two frameworks, the port's operations that make random numbers, or something of nothing but these."""
        found: set[int] = set()
        for i, op in enumerate(self.port.ops if self.loosely else ()):
            if op.name in DRAWN or (op.operands and all(one.op in found for one in op.operands)):
                found.add(i)
        return found

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
        if i in self.drawn or i in self.inside:
            return True
        if j is not None:
            mate = self.oracle.ops[j]
            if mate.digest == op.digest or (mate.name, mate.out.shape) == (op.name, op.out.shape):
                return mate.digest == op.digest
        return op.digest in self.known and hard_to_meet(op.out)

    def taken(self, since: int) -> list[int]:
        """Operations from some number on that the oracle has not, and whose results nothing that it has took."""
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

    def used_alike(self, found: str) -> int:
        """When both sides last do the same with some value; 0: they never do."""
        return max(
            (
                self.port.ops[i].when
                for i, j in self.mates.items()
                if found
                in {one.digest for one in self.port.ops[i].operands}
                & {one.digest for one in self.oracle.ops[j].operands}
            ),
            default=0,
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


def hard_to_meet(tensor: Tensor) -> bool:
    """Whether two tensors are hardly equal by chance: many elements, not all of them one, or a float of many digits."""
    if tensor.dtype in FLOATS:
        values = wide(tensor)
        if np.any(np.mod(values[np.isfinite(values)] * ROUND, 1)):
            return True
    return tensor.size >= MANY and bool(np.any(tensor.ravel() != tensor.ravel()[0]))


def steps(sides: Sides) -> list[Step]:
    """The comparison, line by line, in order of execution."""
    found = []
    for i, j in sides.pairs:
        ours = None if i is None else sides.port.ops[i]
        theirs = None if j is None else sides.oracle.ops[j]
        step = Step(ours, theirs)
        if i is not None and j is not None:
            step.replay = partial(sides.replayed, i, j)
        found.append(step)
    return found


def last_of(ops: list[Op], found: str) -> int | None:
    """Number of the last operation that gave a tensor of this digest."""
    return next((i for i in range(len(ops) - 1, -1, -1) if ops[i].digest == found), None)


def number_of(sides: Sides, i: int) -> int:
    """The line of the comparison that the port's operation `i` stands in; -1: it made the model."""
    return next((n for n, (ours, _) in enumerate(sides.pairs) if ours == i), -1)


def step_at(sides: Sides, at: Site) -> int:
    """The first line of the comparison that an operation of this place stands in."""
    places = ((n, sides.port.ops[i].sites) for n, (i, _) in enumerate(sides.pairs) if i is not None)
    return next((n for n, sites in places if at in sites), -1)


def named_line(op: Op) -> str:
    """The innermost line that asked for an operation."""
    return str(op.sites[-1]) if op.sites else "no line known"


def function_of(op: Op) -> tuple[str, str] | None:
    """(file, function) of that line."""
    return (op.sites[-1].file, op.sites[-1].function) if op.sites else None


def trail_of(sides: Sides) -> Trail | None:
    """The way back of the port's values, where its calls are logged."""
    return None if sides.port.watch is None else Trail(sides.port.watch)
