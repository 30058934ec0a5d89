"""An oracle that fills arrays up to a fixed size, beside a port that does not: its log, cut to what is filled in."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from stages.gates import Tensor
from stages.trace.oplog import Operand, OpLog, digest

EMPTY = ("zeros", "full", "zeros_like", "full_like")
VARIANTS = 4  # of one array: each axis of the filled size cut or whole


def cropped(port: OpLog, oracle: OpLog) -> OpLog:
    """The oracle's log, its filled arrays as long as the port's are; itself where it fills up nothing.

    An array is cut only where the port has the cut one, or has nothing of its full shape; and where the oracle cut
    nothing that the port has, nothing is: then the sizes have another cause.
    """
    sizes = dict(_sizes(oracle))
    if not sizes:
        return oracle
    known = {op.digest for op in port.ops} | port.leaves.keys()
    shapes = {op.out.shape for op in port.ops}
    renamed: dict[str, str] = {}
    leaves = {}
    for found, tensor in oracle.leaves.items():
        part = _part(tensor, found, sizes, known, shapes)
        renamed[found] = digest(part)
        leaves[renamed[found]] = part
    parts = [_part(op.out, op.digest, sizes, known, shapes) for op in oracle.ops]
    digests = [digest(part) for part in parts]

    def operand(one: Operand) -> Operand:
        if one.op >= 0 and oracle.ops[one.op].digest == one.digest:
            shape = (
                tuple(sizes.get(n, n) for n in one.shape)
                if parts[one.op].size != oracle.ops[one.op].out.size
                else one.shape
            )
            return Operand(one.op, digests[one.op], shape)
        new = renamed.get(one.digest, one.digest)
        return Operand(one.op, new, leaves[new].shape if new in leaves and new != one.digest else one.shape)

    ops = [
        replace(op, out=part, digest=found, operands=tuple(map(operand, op.operands)))
        for op, part, found in zip(oracle.ops, parts, digests, strict=True)
    ]
    gained = {op.digest for op in ops} & known - {op.digest for op in oracle.ops}
    return OpLog(ops, leaves | oracle.leaves, keys=oracle.keys) if gained else oracle


def _sizes(log: OpLog) -> Iterator[tuple[int, int]]:
    """(filled size, own size) of every axis that is filled with nothing, or that filling is taken off again."""
    for op in log.ops:
        made = [log.ops[one.op] if one.op >= 0 else None for one in op.operands]
        shapes = [one.shape for one in op.operands]
        if op.name == "concatenate" and len(op.operands) == 2 and made[1] is not None and made[1].name in EMPTY:
            yield from _longer(op.out.shape, shapes[0])
        elif op.name == "getitem" and len(op.operands) == 2 and made[0] is not None:
            chosen = _flags(log, op.operands[1])
            if chosen is not None and _leading(chosen) and chosen.sum() < chosen.size:
                yield chosen.size, int(chosen.sum())
    yield from _counted(log)


def _counted(log: OpLog) -> Iterator[tuple[int, int]]:
    """(size, own size) of axes cut to as many as there are flags that are set, the leading ones."""
    counts: dict[int, int] = {}
    for op in log.ops:
        flags = _flags(log, op.operands[0]) if op.operands else None
        if op.name == "astype" and flags is not None and op.out.dtype != bool and _leading(flags):
            counts[flags.size] = int(flags.sum())
        elif op.name == "getitem" and len(op.operands) == 1:
            cut = zip(op.operands[0].shape[-op.out.ndim :], op.out.shape, strict=True)
            yield from ((a, b) for a, b in cut if counts.get(a) == b < a)


def _longer(filled: tuple[int, ...], own: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    if len(filled) == len(own):
        yield from ((a, b) for a, b in zip(filled, own, strict=True) if a > b)


def _flags(log: OpLog, operand: Operand) -> Tensor | None:
    found = log.ops[operand.op].out if operand.op >= 0 else log.leaves.get(operand.digest)
    return found if found is not None and found.dtype == bool else None


def _leading(flags: Tensor) -> bool:
    flat = flags.ravel()
    return bool(flat[: int(flat.sum())].all())


def _part(tensor: Tensor, found: str, sizes: dict[int, int], known: set[str], shapes: set[tuple[int, ...]]) -> Tensor:
    axes = [axis for axis, n in enumerate(tensor.shape) if n in sizes]
    if not axes or found in known:
        return tensor
    smallest = tensor
    for cut in list(product((True, False), repeat=len(axes)))[:VARIANTS]:
        where = tuple(
            slice(sizes[n]) if axis in axes and cut[axes.index(axis)] else slice(None)
            for axis, n in enumerate(tensor.shape)
        )
        part = np.ascontiguousarray(tensor[where])
        if digest(part) in known:
            return part
        smallest = part if part.size < smallest.size else smallest
    return tensor if tensor.shape in shapes else smallest
