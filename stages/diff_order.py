"""Where two runs part first, in order of execution: what is unlike the oracle's and never becomes like it again."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from .diff_sides import Sides, hard_to_meet
from .gates import FLOATS
from .oplog import Op

# What writes to a part of an array: what is wrong in it later says nothing of how it was before.
BUFFERS = frozenset({"setitem", "slice_update", "put_along_axis"})

SOON = 12  # operations after which something that was unlike is alike again, if it ever is


@dataclass(frozen=True)
class Gap:
    """Between two moments at which both sides were alike, the first where they are not.

    Attributes:
        port: What the port does there that the oracle has not, and that matters later.
        oracle: The reverse.
        before: The port's operation at the first moment; None: there is none.
        after: That at the second; None: they never are alike again.
    """

    port: tuple[int, ...]
    oracle: tuple[int, ...]
    before: int | None
    after: int | None


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
        ends: list[int] = []
        tails: list[int] = []
        back: list[int] = []
        for n, (_, j) in enumerate(pairs):
            at = bisect_left(tails, j)
            tails[at : at + 1] = [j]
            ends[at : at + 1] = [n]
            back.append(ends[at - 1] if at else -1)
        chain: list[tuple[int, int]] = []
        n = ends[-1] if ends else -1
        while n >= 0:
            chain.append(pairs[n])
            n = back[n]
        return chain[::-1]

    def port(self, *, strictly: bool = True) -> list[int]:
        """The port's operations that are unlike and stay so, in order; without what nobody looked at, if strictly."""
        ops, start = self.sides.port.ops, self.sides.port.start
        read = self._read if strictly else _some
        return [i for i in _lasting(ops, self.sides.good, read) if i >= start]

    def oracle(self) -> list[int]:
        """The same of the oracle's, of those that are fed by something that the port has."""
        ours, ops = self.sides.port.ops, self.sides.oracle.ops
        have = {op.digest for op in ours} | self.sides.port.leaves.keys()
        paired = {j for i, j in self.sides.mates.items() if ours[i].digest == ops[j].digest}
        lasting = _lasting(ops, lambda j: j in paired or (ops[j].digest in have and hard_to_meet(ops[j].out)), self._read)
        return [j for j in lasting if any(one.digest in have and max(one.shape, default=1) > 1 for one in ops[j].operands)]

    def gap(self, *, strictly: bool = True) -> Gap | None:
        """The first gap in which one side has something that the other has not; None where there is none."""
        ours, theirs = self.port(strictly=strictly), self.oracle()
        a = b = 0
        before: int | None = None
        for i, j in [*self.anchors, (len(self.sides.port.ops), len(self.sides.oracle.ops))]:
            here = tuple(one for one in ours[a:] if one < i)
            there = tuple(one for one in theirs[b:] if one < j)
            if here or there:
                return Gap(here, there, before, i if i < len(self.sides.port.ops) else None)
            a, b, before = a + len(here), b + len(there), i
        return None

    def _read(self, op: Op) -> bool:
        """Whether what nothing else took may matter: an output, or what Python may have looked at."""
        if op.digest in self.wanted or (op.out.dtype == bool and op.out.size):
            return True
        return op.out.size > 1 and op.out.dtype not in FLOATS


def _some(op: Op) -> bool:
    return op.out.size > 1


def _lasting(ops: list[Op], good: Callable[[int], bool], read: Callable[[Op], bool]) -> list[int]:
    taken: dict[int, list[int]] = {}
    for i, op in enumerate(ops):
        for place, one in enumerate(op.operands):
            if place or op.name not in BUFFERS:
                taken.setdefault(one.op, []).append(i)
    lasting: set[int] = set()
    away: dict[int, int] = {}
    for i in range(len(ops) - 1, -1, -1):
        if good(i):
            continue
        # Two rows of numbers that are decided alike are not alike.
        loose, uses = ops[i].out.dtype in FLOATS, taken.get(i, [])
        left = [one for one in uses if not (loose and good(one) and ops[one].out.dtype not in FLOATS)]
        away[i] = 1 + (0 if left and good(left[0]) else away.get(left[0], SOON) if left else SOON)
        if any(one in lasting for one in left) or (uses and not left) or (not uses and read(ops[i])):
            lasting.add(i)
    return [i for i in sorted(lasting) if away[i] > SOON]
