"""The first operation that introduces an error: found backwards from the outputs, explained by its operands."""

from dataclasses import dataclass, field

import numpy as np

from .diff_align import Pair
from .diff_far import Far, far
from .gates import Tensor
from .oplog import Op, Operand, OpLog, Site, digest

NEAR = 40  # operations before and after one, among which a function that does more shows itself
REFUSED = (ValueError, RuntimeError, TypeError, IndexError)  # what MLX raises of operands that do not fit


@dataclass
class Step:
    """One line of a comparison: an operation of the port beside the oracle's, or one that only one side has.

    Attributes:
        total: How far apart their outputs are; None where nothing can be compared.
        introduced: What is left of that when the port's operation is done again on the oracle's operands.
        inherited: What the port's own operands add: its output on them against its output on the oracle's.
    """

    port: Op | None
    oracle: Op | None
    total: Far | None = None
    introduced: Far | None = None
    inherited: Far | None = None


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
        mates: The oracle's number for each of the port's operations that is paired.
        known: Digests of everything that the oracle made or read.
    """

    port: OpLog
    oracle: OpLog
    pairs: list[Pair]
    mates: dict[int, int] = field(init=False)
    known: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.mates = {i: j for i, j in self.pairs if i is not None and j is not None}
        self.known = {op.digest for op in self.oracle.ops} | self.oracle.leaves.keys()

    def good(self, i: int) -> bool:
        """Whether the oracle has what the port's operation `i` gave: at the same place, or somewhere else."""
        op, j = self.port.ops[i], self.mates.get(i)
        if j is not None:
            mate = self.oracle.ops[j]
            if mate.digest == op.digest or (mate.name, mate.out.shape) == (op.name, op.out.shape):
                return mate.digest == op.digest
        return op.digest in self.known and _telling(op.out)

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
    """Whether two tensors are hardly equal by chance: eight elements or more, and not all of them one."""
    return tensor.size >= 8 and bool(np.any(tensor.ravel() != tensor.ravel()[0]))


def steps(sides: Sides) -> list[Step]:
    """The comparison, line by line, in order of execution."""
    found = []
    for i, j in sides.pairs:
        ours = None if i is None else sides.port.ops[i]
        theirs = None if j is None else sides.oracle.ops[j]
        step = Step(ours, theirs)
        if i is not None and j is not None and ours and theirs:
            step.total = far(theirs.out, ours.out)
            if ours.digest == theirs.digest:
                step.introduced = step.inherited = step.total
            elif (again := sides.replayed(i, j)) is not None:
                step.introduced, step.inherited = far(theirs.out, again), far(again, ours.out)
        found.append(step)
    return found


def first(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]]) -> First | None:
    """The first operation that introduces an error which reaches an output; None where no operation does.

    Args:
        sides: The logs.
        outs: (the oracle's, the port's) of each output that differs.
    """
    ops = sides.port.ops
    ends = {name: _last(ops, digest(mine)) for name, (_, mine) in outs.items()}
    # An output that numpy finished afterwards was made by no operation: any of them may have led to it.
    roots = range(len(ops)) if None in ends.values() else [i for i in ends.values() if i is not None]
    bad: set[int] = set()
    todo = [i for i in roots if not sides.good(i)]
    while todo:
        at = todo.pop()
        if at not in bad:
            bad.add(at)
            todo += [one.op for one in ops[at].operands if one.op >= 0 and not sides.good(one.op)]
    sources = [i for i in sorted(bad) if not any(one.op in bad for one in ops[i].operands)]
    if sources:
        # Two implementations may come to one value by other ways, masks and tables above all: an operation that
        # both have, fed alike, says more than one that only the port has.
        return _explained(sides, max(sources, key=lambda i: (_weight(sides, i), -i)))
    for name, end in ends.items():
        if end is not None and (j := _last(sides.oracle.ops, digest(outs[name][0]))) is not None:
            return _stopped(sides, name, end, j)
    return _left_out(sides)


def _weight(sides: Sides, i: int) -> int:
    op, j = sides.port.ops[i], sides.mates.get(i)
    mate = None if j is None else sides.oracle.ops[j]
    if not op.operands:
        return 0
    if mate is None or mate.name != op.name:
        return 1
    return 3 if (mate.out.shape, mate.out.dtype) == (op.out.shape, op.out.dtype) else 2


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
    return next(n for n, (ours, _) in enumerate(sides.pairs) if ours == i)


def _explained(sides: Sides, i: int) -> First:
    op, j = sides.port.ops[i], sides.mates.get(i)
    at, why = op.sites[-1] if op.sites else None, ""
    if j is None or sides.oracle.ops[j].name != op.name:
        why = f"the oracle has no such {op.name} here"
        if j is not None:
            theirs = sides.oracle.ops[j]
            why += f": {theirs.name} stands in its place ({_line(theirs)})"
        return First(_number(sides, i), at, op.sites, why)
    theirs, again = sides.oracle.ops[j], sides.replayed(i, j)
    differing = sides.operands(i, j)
    parts = [_operands(sides, mine, like) for _, mine, like in differing]
    if again is not None and digest(again) == theirs.digest:
        made = [mine.op for _, mine, _ in differing if mine.op >= 0]
        at = _between(sides.port.ops[made[0]].sites, op.sites) if made else _caller(sides.port, i)
        why = f"{op.name} is the oracle's, but not what it is given: {'; '.join(parts)}"
    elif len(op.operands) != len(theirs.operands):
        why = f"{op.name} of {len(op.operands)} arrays, the oracle's of {len(theirs.operands)}"
    elif parts:
        why = f"{op.name}, given something else: {'; '.join(parts)}"
    else:
        why = f"{op.name} of the same arrays gives something else"
    told, asked = _told(op.fixed), _told(theirs.fixed)
    if told != asked and not (again is not None and digest(again) == theirs.digest):
        why += f"; told ({', '.join(sorted(told - asked))}), the oracle's ({', '.join(sorted(asked - told))})"
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


def _between(made: tuple[Site, ...], used: tuple[Site, ...]) -> Site | None:
    """Where a value was handed on: the innermost function that both its making and its use passed through."""
    found = used[0] if used else None
    for a, b in zip(made, used, strict=False):
        if (a.file, a.function) != (b.file, b.function):
            break
        found = b
        if a.line != b.line:
            break
    return found


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
    return First(_number(sides, i), _caller(sides.port, i), op.sites, why)
