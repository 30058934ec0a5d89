"""Where two runs part first, in order of execution: what is unlike the oracle's and never becomes like it again."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from stages.gates import FLOATS
from stages.trace.oplog import Op, Operand
from stages.trace.whence import DOORS

from .align import rising
from .sides import Sides, hard_to_meet

# What writes to a part of an array: what is wrong in it later says nothing of how it was before.
BUFFERS = frozenset({"setitem", "slice_update", "put_along_axis"})

FAR = 3  # operations that something short is followed through, to something long
SOON = 12  # operations after which something that was unlike is alike again, if it ever is


@dataclass(frozen=True)
class Gap:
    """Between two moments at which both sides were alike, the first where they are not.

    Attributes:
        port: What the port does there that the oracle has not, and that matters later.
        oracle: The reverse.
        before: The port's operation at the first moment; None: there is none.
        after: That at the second; None: they never are alike again.
        idle: Whether nothing that the port does there is looked at by anybody.
        wanted: Digests of the outputs that differ.
    """

    port: tuple[int, ...]
    oracle: tuple[int, ...]
    before: int | None
    after: int | None
    idle: bool = False
    wanted: frozenset[str] = frozenset()


@dataclass
class Order:
    """Two logs beside each other, read forwards.

    An operation whose result the other side has not is harmless where what is made of it the other side has again: a
    mask in another form, a table by another way. What is left is where a run leaves the other one for good.

    Attributes:
        wanted: Digests of the outputs that differ.
    """

    sides: Sides
    wanted: frozenset[str] = frozenset()

    @cached_property
    def anchors(self) -> list[tuple[int, int]]:
        """Pairs of operations that give the same and are hardly alike by chance, as many as stand in one order."""
        ours, theirs = self.sides.port.ops, self.sides.oracle.ops
        pairs = [
            (i, j)
            for i, j in sorted(self.sides.mates.items())
            if ours[i].digest == theirs[j].digest and i >= self.sides.port.start and hard_to_meet(ours[i].out)
        ]
        return rising(pairs)

    def port(self, *, strictly: bool = True) -> list[int]:
        """The port's operations that are unlike and stay so, in order; without what nobody looked at, if strictly."""
        ops, start = self.sides.port.ops, self.sides.port.start
        read = self._read if strictly else _some
        return [i for i in _lasting(ops, self.sides.good, read) if i >= start]

    def oracle(self) -> list[int]:
        """The same of the oracle's, of those that are fed by something that the port has."""
        ours, ops = self.sides.port.ops, self.sides.oracle.ops
        have = {op.digest for op in ours} | self.sides.port.leaves.keys()
        told = {op.digest for op in ours if hard_to_meet(op.out)}
        told |= {found for found, tensor in self.sides.port.leaves.items() if hard_to_meet(tensor)}
        paired = {j for i, j in self.sides.mates.items() if ours[i].digest == ops[j].digest}

        done = {(op.name, frozenset(one.digest for one in op.operands)) for op in ours if op.operands}

        def good(j: int) -> bool:
            op = ops[j]
            again = (op.name, frozenset(one.digest for one in op.operands)) in done
            return j in paired or (op.digest in have and (again or hard_to_meet(op.out)))

        def known(one: Operand) -> bool:
            return one.digest in told or (one.digest in have and max(one.shape, default=1) > 1)

        lasting = _lasting(ops, good, self._read)
        lasting = [j for j in lasting if not (ops[j].sites and ops[j].sites[-1].file.endswith(DOORS))]
        fed = self._ready([j for j in lasting if any(map(known, ops[j].operands))])
        return fed or [j for j in lasting if ops[j].out.size > 1 and any(one.op >= 0 for one in ops[j].operands)]

    def _ready(self, lasting: list[int]) -> list[int]:
        """Without what is made of weights alone, long before anything takes it: when that is made says nothing."""
        ops, used = self.sides.oracle.ops, dict[int, int]()
        for j, op in enumerate(ops):
            for one in op.operands:
                used.setdefault(one.op, j)
        return [j for j in lasting if used.get(j, j) - j <= SOON or any(one.op >= 0 for one in ops[j].operands)]

    def gap(self, *, strictly: bool = True) -> Gap | None:
        """The first gap in which one side has something that the other has not; None where there is none."""
        ours, theirs = self.port(strictly=strictly), self.oracle()
        before: int | None = None
        for i, j in [*self.anchors, (len(self.sides.port.ops), len(self.sides.oracle.ops))]:
            if (ours and ours[0] < i) or (theirs and theirs[0] < j):
                here, there = ours[: bisect_left(ours, i)], theirs[: bisect_left(theirs, j)]
                after = i if i < len(self.sides.port.ops) else None
                return Gap(tuple(here), tuple(there), before, after, not strictly, self.wanted)
            before = i
        return None

    def extra(self) -> Gap | None:
        """The first that the port has and the oracle has not, whatever the oracle has before."""
        ours = self.port()
        if not ours:
            return None
        at = bisect_left(self.anchors, (ours[0], -1))
        after = self.anchors[at][0] if at < len(self.anchors) else None
        return Gap((ours[0],), (), self.anchors[at - 1][0] if at else None, after, wanted=self.wanted)

    def _read(self, op: Op) -> bool:
        """Whether what nothing else took may matter: an output, or what Python may have looked at."""
        if op.digest in self.wanted or op.out.dtype == bool:
            return bool(op.out.size)
        return op.out.size > 1 and op.out.dtype not in FLOATS


def _some(op: Op) -> bool:
    return op.out.size > 1


def _lasting(ops: list[Op], good: Callable[[int], bool], read: Callable[[Op], bool]) -> list[int]:
    taken: dict[int, list[int]] = {}
    for i, op in enumerate(ops):
        for place, one in enumerate(op.operands):
            if place or op.name not in BUFFERS:
                taken.setdefault(one.op, []).append(i)

    def tells(made: int, of_it: int, far: int = FAR) -> bool:
        """Whether what was made of something is alike, and not by chance: it is long, or something long is made of it.

        Rows of numbers that sort alike need not be alike.
        """
        if not good(of_it) or (ops[of_it].out.dtype not in FLOATS and ops[made].out.dtype in FLOATS):
            return False
        return hard_to_meet(ops[of_it].out) or (
            far > 0 and any(tells(of_it, one, far - 1) for one in taken.get(of_it, ()))
        )

    lasting: set[int] = set()
    away: dict[int, int] = {}
    for i in range(len(ops) - 1, -1, -1):
        if good(i):
            continue
        uses = taken.get(i, [])
        left = [one for one in uses if not good(one) or tells(i, one)]
        away[i] = 1 + (0 if left and good(left[0]) else away.get(left[0], SOON) if left else SOON)
        if any(one in lasting for one in left) or (uses and not left) or (not uses and read(ops[i])):
            lasting.add(i)
    return [i for i in sorted(lasting) if away[i] > SOON]
