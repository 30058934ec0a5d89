"""The first operation that introduces an error: found backwards from the outputs, explained by its operands."""

from collections.abc import Callable

from stages.gates import Tensor
from stages.trace.oplog import Operand, OpLog, digest

from .blame import at_hand, caller, early_at, gave_at, handed_at, seeded_at, told_at, unmasked_at, withheld_at
from .dropped import dropped
from .early import unfinished
from .given import decided_before, given_out, never_read
from .gradients import cut_at
from .helpers import helped, inherits, once_too_often, settled
from .instead import put_together, stranger
from .members import misjudged
from .order import Gap
from .parameters import name_of
from .picked import picked
from .rounds import round_more
from .sides import DRAWN, First, Sides, function_of, hard_to_meet, last_of, named_line, number_of
from .stale import stale
from .unfit import unfit_at
from .window import alone, decided, parted, stopped_at, undone
from .words import worded

STRONG = 3  # weight of an operation that both sides have, in one shape and dtype


def first(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]], *, raised: bool = False) -> First | None:
    """The first operation that introduces an error which reaches an output; None where no operation does.

    Args:
        sides: The logs.
        outs: (the oracle's, the port's) of each output that differs.
        raised: Whether the port gave none, but raised.
    """
    # Two frameworks do the same in other operations: what only one of them does says little.
    gap = None if sides.loosely else parted(sides, outs)
    if not sides.loosely and (found := stale(sides, gap.port[0] if gap and gap.port else None)) is not None:
        return found
    if (gap is None or not gap.port or gap.idle) and (sites := stopped_at(sides, raised=raised)):
        return First(number_of(sides, len(sides.port.ops) - 1), sites[0], sites, "the port raises here", sites)
    if gap is None and raised and (sites := unfit_at(sides)):
        why = "the framework refuses what is put together, of right arrays: one should not be there"
        return First(number_of(sides, len(sides.port.ops) - 1), sites[0], sites, why, sites)
    found = None if sides.loosely else misjudged(sides, gap)
    if found is not None or (gap is not None and (found := _parting(sides, gap)) is not None):
        return found
    if gap is None and not sides.loosely and (found := worded(sides, outs)) is not None:
        return found
    return _backwards(sides, outs)


def _parting(sides: Sides, gap: Gap) -> First | None:
    """Why two runs part: what Python decided there, what it left undone, or what it computed."""
    found = round_more(sides, gap) if gap.port else unfinished(sides, gap.before, gap.oracle[0])
    if found is not None:
        return found
    if (found := undone(sides, gap)) is not None:
        return found
    if alone(sides, gap) and (found := decided(sides, gap)) is not None:
        return found
    return _left(sides, gap) if gap.port else None


def _left(sides: Sides, gap: Gap) -> First:
    """What is to be looked at of the operations that the port has in a gap."""
    if (i := stranger(sides, gap)) is not None:
        return _explained(sides, i)
    op = sides.port.ops[gap.port[0]]
    for at, how in ((picked(sides, gap), "a setting is taken here"), (put_together(sides, gap), "it is done here")):
        if at is not None:
            why = f"the oracle has no such {op.name} here: {how} where it goes another way"
            return First(number_of(sides, gap.port[0]), at, op.sites, why)
    here = _fed_otherwise(sides, gap.port)
    return _explained(sides, _told_before(sides, here) or here, bare=_unlike(sides, gap.port))


def _fed_otherwise(sides: Sides, ops: tuple[int, ...]) -> int:
    """The first of these; of a row of numbers, made otherwise, that is used otherwise too, rather its use."""
    first, port = ops[0], sides.port.ops
    if port[first].operands:
        return first
    for i in ops[1:]:
        mate = sides.mates.get(i)
        if any(one.op == first for one in port[i].operands) and mate is not None:
            theirs = sides.oracle.ops[mate]
            if port[i].name == theirs.name and _told(port[i].fixed) != _told(theirs.fixed):
                return i
            break
    return first


def _told_before(sides: Sides, i: int) -> int | None:
    """The first on the way to an operation that differs by what it is told alone; None where none does."""
    ops, seen, todo = sides.port.ops, {i}, [i]
    while todo:
        todo += [one.op for one in ops[todo.pop()].operands if one.op not in seen and one.op >= sides.port.start]
        todo = [one for one in dict.fromkeys(todo) if one not in seen and not sides.good(one)]
        seen.update(todo)
    for at in sorted(seen - {i}):
        theirs = sides.oracle.ops[sides.mates[at]] if at in sides.mates else None
        if theirs is not None and theirs.name == ops[at].name and ops[at].operands:
            alike = [one.digest for one in theirs.operands] == [one.digest for one in ops[at].operands]
            if alike and _told(theirs.fixed) != _told(ops[at].fixed):
                return at
    return None


def _unlike(sides: Sides, ops: tuple[int, ...]) -> bool:
    """Whether the first of these is a row of numbers that the port uses for something else than the oracle."""
    port, mates = sides.port.ops, sides.mates
    if port[ops[0]].operands or port[ops[0]].name in DRAWN:
        return False
    user = next((i for i in ops[1:] if any(one.op == ops[0] for one in port[i].operands)), None)
    return user is None or user not in mates or port[user].name != sides.oracle.ops[mates[user]].name


def _backwards(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]]) -> First | None:
    ops = sides.port.ops
    sides.inside = settled(sides)
    ends = {name: last_of(ops, sides.digest(mine)) if hard_to_meet(mine) else None for name, (_, mine) in outs.items()}
    roots = [i for i in ends.values() if i is not None]
    if sources := _sources(sides, roots):
        # Two implementations may come to one value by other ways, masks and tables above all: an operation that
        # both have, fed alike, says more than one that only the port has.
        source = max(sources, key=lambda i: (_weight(sides, i), -i))
        return decided_before(sides, outs, ops[source].when) or _explained(sides, source)
    # What Python finished was made by no operation: those whose results nothing else took may have led to it.
    lost = [] if roots else [i for one in sides.taken(sides.port.start) for i in _sources(sides, [one])]
    strong = [i for i in lost if _weight(sides, i) == STRONG]
    ways: tuple[Callable[[], First | None], ...] = (
        lambda: None if roots else cut_at(sides, outs),
        lambda: _explained(sides, min(strong)) if strong else None,
        lambda: _stopped_at(sides, outs, ends),
        lambda: dropped(sides, outs),
        lambda: given_out(sides, outs),
        lambda: _loaded(sides, lost),
        lambda: _explained(sides, min(lost)) if lost else _left_out(sides),
    )
    return next((found for way in ways if (found := way()) is not None), None)


def _stopped_at(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]], ends: dict[str, int | None]) -> First | None:
    for name, end in ends.items():
        if end is not None and (j := last_of(sides.oracle.ops, digest(outs[name][0]))) is not None:
            return _stopped(sides, name, end, j)
    return None


def _loaded(sides: Sides, lost: list[int]) -> First | None:
    """Where nothing was computed: what was loaded?"""
    if lost or len(sides.port.ops) != sides.port.start:
        return None
    if (found := never_read(sides)) is not None:
        return found
    made = [i for one in sides.taken(0) for i in _sources(sides, [one]) if _loads(sides, i)]
    return _explained(sides, min(made)) if made else None


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
    found = [i for i in sorted(fed) if not any(one.op in fed for one in ops[i].operands)]
    return [i for i in found if not inherits(sides, i, fed)] or found


def _loads(sides: Sides, i: int) -> bool:
    """Whether an operation makes something of the oracle's shape that the oracle has otherwise, or as it was."""
    op = sides.port.ops[i]
    kept = len(op.operands) == 1 and op.operands[0].shape == op.out.shape and op.operands[0].digest in sides.known
    return kept or sides.misses(op.out.shape)


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
            why = f"after this the oracle goes on with {op.name} ({named_line(op)}), which the port has not"
            at = last.sites[-1] if last.sites else None
            return First(number_of(sides, max(fed)), at, last.sites, why, sure=False)
    return None


def _explained(sides: Sides, i: int, *, bare: bool = False) -> First:
    if (chosen := helped(sides, i)) is not None:
        return chosen
    op, j = sides.port.ops[i], sides.mates.get(i)
    at, why = op.sites[-1] if op.sites else None, ""
    if j is None or sides.oracle.ops[j].name != op.name:
        why = f"the oracle has no such {op.name} here"
        if j is not None:
            theirs = sides.oracle.ops[j]
            why += f": {theirs.name} stands in its place ({named_line(theirs)})"
        told = {repr(one) for one in op.told if isinstance(one, float) and one % 1}
        found = told_at(sides, i, told - sides.told) or unmasked_at(sides, i) or once_too_often(sides, i)
        return First(number_of(sides, i), found or at, op.sites, why)
    theirs, again = sides.oracle.ops[j], sides.replayed(i, j)
    if op.name in DRAWN and op.fixed == theirs.fixed and (seed := seeded_at(sides, i)) is not None:
        why = f"{op.name} gives something else, asked the same: the generator is seeded here"
        return First(number_of(sides, i), seed, op.sites, why)
    differing = sides.operands(i, j)
    parts = [_operands(sides, mine, like) for _, mine, like in differing]
    if again is not None and sides.digest(again) == theirs.digest:
        at = handed_at(sides, i, differing) or at
        why = f"{op.name} is the oracle's, but not what it is given: {'; '.join(parts)}"
    elif len(op.operands) != len(theirs.operands):
        why = f"{op.name} of {len(op.operands)} arrays, the oracle's of {len(theirs.operands)}"
        at = caller(sides.port, i) or at
        if len(op.operands) < len(theirs.operands):
            taken = at_hand(sides, i, j)
            at = taken or (withheld_at(sides, i) if None in op.told else None) or at
            bare = bare or taken is not None
    elif parts:
        why = f"{op.name}, given something else: {'; '.join(parts)}"
        at = early_at(sides, i, differing) or at
    else:
        why = f"{op.name} of the same arrays gives something else"
    told, asked = _told(op.fixed), _told(theirs.fixed)
    if told != asked and not (again is not None and sides.digest(again) == theirs.digest):
        why += f"; told ({', '.join(sorted(told - asked))}), the oracle's ({', '.join(sorted(asked - told))})"
        words = len(op.operands) == len(theirs.operands) or any("'" in one for one in told - asked)
        at = at if bare or not words else told_at(sides, i, told - asked, asked - told) or at
    return First(number_of(sides, i), at, op.sites, why)


def _told(fixed: str) -> set[str]:
    return {one for one in fixed.split(", ") if not one.endswith("=None")}


def _operands(sides: Sides, mine: Operand, like: Operand) -> str:
    own, right = (_named(log, one, name_of(sides, one)) for log, one in ((sides.port, mine), (sides.oracle, like)))
    return f"{own} where the oracle's is {right}"


def _named(log: OpLog, operand: Operand, name: str) -> str:
    shape = "x".join(map(str, operand.shape)) or "a number"
    if name:
        return f"the parameter {name} [{shape}]"
    if operand.op < 0:
        return f"an array [{shape}] that no operation made"
    op = log.ops[operand.op]
    return f"the result [{shape}] of {op.name} ({named_line(op)})"


def _stopped(sides: Sides, name: str, i: int, j: int) -> First:
    """The output is one of the oracle's values, but not its last: something is left out after it, or put elsewhere."""
    op, theirs = sides.port.ops[i], sides.oracle.ops[j]
    paired = set(sides.mates.values())
    lacking = [one for n, one in enumerate(sides.oracle.ops[: j + 1]) if n not in paired]
    more = (
        ", ".join(f"{one.name} ({named_line(one)})" for one in lacking[-3:]) or f"{theirs.name} ({named_line(theirs)})"
    )
    why = f"{name} is given out here, where the oracle goes on with {more}"
    mate = sides.mates.get(i)
    # Where the oracle does it in the function that does the last thing alike, so should the port.
    last = None if mate is None or not lacking else sides.oracle.ops[mate]
    together = (
        last is not None
        and function_of(last) == function_of(lacking[-1])
        and last.sites[:-1] == lacking[-1].sites[:-1]
        and named_line(last) != named_line(lacking[-1])
    )
    return First(number_of(sides, i), gave_at(sides, op, within=together) or caller(sides.port, i), op.sites, why)
