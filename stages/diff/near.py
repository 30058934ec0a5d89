"""Two frameworks never give the same bits: what is nearly the oracle's gets its digest, and compares as equal."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import numpy as np

from stages.gates import FLOATS, Tensor, wide
from stages.trace.oplog import Operand, OpLog, digest

# Rounding of float32 gathers to 1e-6 of a tensor over the operations of a small model; planted bugs begin at 1e-4.
NEAR = 2e-5
AXES = 4  # a tensor of more is compared in its own order alone


class Near:
    """Everything an oracle made or read, to be asked for what is nearly the same."""

    def __init__(self, oracle: OpLog, near: float = NEAR) -> None:
        self.near = near
        self._by_size: dict[int, list[tuple[str, Tensor]]] = {}
        tensors = {op.digest: op.out for op in oracle.ops} | oracle.leaves
        for found, tensor in tensors.items():
            self._by_size.setdefault(tensor.size, []).append((found, tensor))

    def digest(self, tensor: Tensor) -> str:
        """The digest of the oracle's tensor that this one nearly is, in whatever order of axes; else its own."""
        for found, theirs in self._by_size.get(tensor.size, ()):
            if (tensor.dtype in FLOATS) == (theirs.dtype in FLOATS) and self.alike(tensor, theirs):
                return found
        return digest(tensor)

    def alike(self, ours: Tensor, theirs: Tensor) -> bool:
        """Whether two tensors of one size differ by rounding alone."""
        a = wide(ours)
        length = float(np.linalg.norm(np.nan_to_num(a, posinf=0.0, neginf=0.0).ravel()))
        b = wide(theirs)
        if not np.isclose(length, float(np.linalg.norm(np.nan_to_num(b, posinf=0.0, neginf=0.0).ravel())), rtol=1e-3):
            return False
        exact = ours.dtype not in FLOATS
        for other in _orders(b, a.shape):
            x, y = a.ravel(), other.ravel()
            if np.array_equal(x, y):
                return True
            finite = np.isfinite(x) & np.isfinite(y)
            if exact or not np.array_equal(x[~finite], y[~finite]):
                continue
            if float(np.linalg.norm((x - y)[finite])) <= self.near * float(np.linalg.norm(y[finite])):
                return True
        return False


def nearness(pairs: list[tuple[Tensor, Tensor]], near: float = NEAR) -> float:
    """How near two tensors have to be to count as equal, so that outputs that fail their gates do not: (oracle, port).

    A gate counts in the oracle's own rounding, and may see what is smaller than that of a whole model.
    """
    for theirs, ours in pairs:
        if theirs.shape == ours.shape and ours.dtype in FLOATS:
            a, b = wide(ours).ravel(), wide(theirs).ravel()
            finite = np.isfinite(a) & np.isfinite(b)
            length, apart = float(np.linalg.norm(b[finite])), float(np.linalg.norm((a - b)[finite]))
            if length and apart:
                near = min(near, apart / length / 2)
    return near


def _orders(tensor: Tensor, shape: tuple[int, ...]) -> Iterator[Tensor]:
    yield tensor
    squeezed = tensor.squeeze()
    wanted = tuple(n for n in shape if n != 1)
    if 1 < squeezed.ndim <= AXES and sorted(squeezed.shape) == sorted(wanted):
        for axes in permutations(range(squeezed.ndim)):
            turned = squeezed.transpose(axes)
            if turned.shape == wanted and axes != tuple(range(squeezed.ndim)):
                yield turned


def adopted(port: OpLog, near: Near) -> OpLog:
    """The port's log, with the digests of the oracle's tensors that its own nearly are."""
    leaves = {found: near.digest(tensor) for found, tensor in port.leaves.items()}
    digests = [near.digest(op.out) for op in port.ops]

    def operand(one: Operand) -> Operand:
        if one.op >= 0 and port.ops[one.op].digest == one.digest:
            return replace(one, digest=digests[one.op])
        return replace(one, digest=leaves.get(one.digest, one.digest))

    ops = [
        replace(op, digest=found, operands=tuple(map(operand, op.operands)))
        for op, found in zip(port.ops, digests, strict=True)
    ]
    names = {op.digest: found for op, found in zip(port.ops, digests, strict=True)} | leaves
    forms = [(name, names.get(found, found), site) for name, found, site in port.forms]
    known = {leaves[found]: tensor for found, tensor in port.leaves.items()}
    return OpLog(ops, port.leaves | known, port.start, port.watch, forms)
