"""Pair the operations of two logs: by value where it is equal, by name, shape and order in between."""

from collections import Counter
from collections.abc import Hashable
from difflib import SequenceMatcher

import numpy as np

from stages.gates import Tensor
from stages.trace.oplog import Op

# Worth of a pair: equal bytes; equal name, shape and dtype; equal name; and what else both were told is equal.
SAME, ALIKE, NAMED, TOLD = 16, 6, 2, 1
CELLS = 4_000_000  # a gap of more pairs than this is aligned by its longest runs instead: the table would not fit
Pair = tuple[int | None, int | None]


def align(port: list[Op], oracle: list[Op], start: int = 0) -> list[Pair]:
    """(number in the port's log, number in the oracle's) in order; None where one side has no such operation.

    The port's are paired from number `start` on.
    """
    if start:
        return [(None if i is None else i + start, j) for i, j in align(port[start:], oracle)]
    pairs: list[Pair] = []
    a = b = 0
    for i, j in [*_anchors(port, oracle), (len(port), len(oracle))]:
        pairs += _gap(port, oracle, (a, i), (b, j))
        if i < len(port):
            pairs.append((i, j))
        a, b = i + 1, j + 1
    return _moved(port, oracle, pairs)


def _moved(port: list[Op], oracle: list[Op], pairs: list[Pair]) -> list[Pair]:
    """What was left over because it stands in another order: paired by value, by an operand in common, or by form."""
    ours = [i for i, j in pairs if i is not None and j is None]
    left = dict.fromkeys(j for i, j in pairs if j is not None and i is None)
    found: dict[int, int] = {}
    for key, fed in ((_value, False), (_form, True), (_form, False)):
        alike: dict[Hashable, list[int]] = {}
        for j in left:
            alike.setdefault(key(oracle[j]), []).append(j)
        for i in ours:
            some = (j for j in alike.get(key(port[i]), ()) if j in left) if i not in found else iter(())
            mate = next((j for j in some if not fed or _fed(port[i], oracle[j])), None)
            if mate is not None:
                found[i] = mate
                del left[mate]
    taken = set(found.values())
    return [(i, j if i is None else found.get(i, j)) for i, j in pairs if i is not None or j not in taken]


def _value(op: Op) -> Hashable:
    return op.name, op.digest


def _form(op: Op) -> Hashable:
    return op.name, op.out.shape, op.out.dtype


def _fed(a: Op, b: Op) -> bool:
    return bool({one.digest for one in a.operands} & {one.digest for one in b.operands})


def _keys(ops: list[Op]) -> list[tuple[str, str]]:
    return [(op.name, op.digest) for op in ops]


def _anchors(port: list[Op], oracle: list[Op]) -> list[tuple[int, int]]:
    """Pairs of one name and value that occur once on either side, as many as stand in one order on both."""
    ours, theirs = _keys(port), _keys(oracle)
    once_a, once_b = Counter(ours), Counter(theirs)
    where = {key: j for j, key in enumerate(theirs) if once_b[key] == 1}
    candidates = [(i, where[key]) for i, key in enumerate(ours) if once_a[key] == 1 and key in where]
    return rising(candidates)


def rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of pairs in the port's order, the most that are in the oracle's order too."""
    tails: list[int] = []
    ends: list[int] = []
    back: list[int] = []
    for n, (_, j) in enumerate(pairs):
        at = int(np.searchsorted(tails, j))
        tails[at : at + 1] = [j]
        ends[at : at + 1] = [n]
        back.append(ends[at - 1] if at else -1)
    chain: list[tuple[int, int]] = []
    n = ends[-1] if ends else -1
    while n >= 0:
        chain.append(pairs[n])
        n = back[n]
    return chain[::-1]


def _numbered(ours: list[Hashable], theirs: list[Hashable]) -> tuple[Tensor, Tensor]:
    """Both as numbers, equal where they are equal."""
    known: dict[Hashable, int] = {}
    a, b = ([known.setdefault(one, len(known)) for one in side] for side in (ours, theirs))
    return np.array(a)[:, None], np.array(b)[None]


def _worth(ours: list[Op], theirs: list[Op]) -> Tensor:
    """What each pair is worth: [operations of the port, operations of the oracle]."""
    names = np.equal(*_numbered([op.name for op in ours], [op.name for op in theirs]))
    values = np.equal(*_numbered([op.digest for op in ours], [op.digest for op in theirs]))
    forms = np.equal(
        *_numbered([(op.out.shape, op.out.dtype) for op in ours], [(op.out.shape, op.out.dtype) for op in theirs])
    )
    told = np.equal(*_numbered([op.fixed for op in ours], [op.fixed for op in theirs]))
    found: Tensor = np.where(names, np.where(values, SAME, np.where(forms, ALIKE, NAMED)) + TOLD * told, 0)
    return found


def _gap(port: list[Op], oracle: list[Op], ours: tuple[int, int], theirs: tuple[int, int]) -> list[Pair]:
    """Between two anchors: the pairing worth most (Needleman and Wunsch, gaps for nothing)."""
    rows, columns = range(*ours), range(*theirs)
    if not rows or not columns:
        return [*((i, None) for i in rows), *((None, j) for j in columns)]
    if len(rows) * len(columns) > CELLS:
        return _by_runs(port, oracle, rows, columns)
    best = np.zeros((len(rows) + 1, len(columns) + 1), np.int64)
    worth = _worth([port[i] for i in rows], [oracle[j] for j in columns])
    for r in range(len(rows) - 1, -1, -1):
        paired = np.where(worth[r] > 0, worth[r] + best[r + 1, 1:], -1)
        line = np.maximum(best[r + 1, :-1], paired)
        # Leaving out an oracle's operation carries the best of what stands further right.
        best[r, :-1] = np.maximum.accumulate(line[::-1])[::-1]
    pairs: list[Pair] = []
    r = c = 0
    while r < len(rows) and c < len(columns):
        if worth[r, c] and best[r, c] == worth[r, c] + best[r + 1, c + 1]:
            pairs.append((rows[r], columns[c]))
            r, c = r + 1, c + 1
        elif best[r, c] == best[r, c + 1]:
            pairs.append((None, columns[c]))
            c += 1
        else:
            pairs.append((rows[r], None))
            r += 1
    return [*pairs, *((i, None) for i in rows[r:]), *((None, j) for j in columns[c:])]


def _by_runs(port: list[Op], oracle: list[Op], rows: range, columns: range) -> list[Pair]:
    ours = [f"{port[i].name} {port[i].out.shape}" for i in rows]
    theirs = [f"{oracle[j].name} {oracle[j].out.shape}" for j in columns]
    pairs: list[Pair] = []
    r = c = 0
    for run in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        pairs += [(i, None) for i in rows[r : run.a]] + [(None, j) for j in columns[c : run.b]]
        pairs += zip(rows[run.a : run.a + run.size], columns[run.b : run.b + run.size], strict=True)
        r, c = run.a + run.size, run.b + run.size
    return pairs
