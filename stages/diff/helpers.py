"""Functions of the port that stand for something the oracle does otherwise, in one operation often: judged as one.

Inside such a function nothing need be the oracle's. What it is given and what it gives is: where the first is the
oracle's and the second is not, either its caller chose wrongly or it is wrong itself. It is called again to tell.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from stages.gates import Tensor
from stages.trace.branches import decided
from stages.trace.frames import Frame
from stages.trace.likeness import NOTHING, evaluated, is_array
from stages.trace.sites import Site
from stages.trace.slices import idle
from stages.trace.whence import DOORS, Place, Trail, latest, site

from .blame import NUMBER
from .calls import Given, around, called_with, function_of, given, helper, of_its_caller, value_of
from .options import chosen_as, renumbered
from .sides import First, Sides, hard_to_meet, last_of, number_of, trail_of
from .twins import confirmed, wrong_inside


def settled(sides: Sides) -> set[int]:
    """Operations that are part of a function whose result is the oracle's: whatever they give, it comes to the same."""
    found = set()
    for i, op in enumerate(sides.port.ops):
        mate = sides.oracle.ops[sides.mates[i]] if i in sides.mates else None
        # Between two runs of one framework the pairs are sure: what differs from its mate does, wherever else it fits.
        sure = not sides.loosely and mate is not None and (mate.name, mate.out.shape) == (op.name, op.out.shape)
        if not sure and not sides.good(i) and any(_right(sides, one) for one in around(op.frame)):
            found.add(i)
    return found


def _right(sides: Sides, frame: Frame) -> bool:
    if frame not in sides.results:
        value = value_of(frame)
        sides.results[frame] = value is not None and _known(sides, value)
    return sides.results[frame]


def _known(sides: Sides, value: Tensor) -> bool:
    return hard_to_meet(value) and sides.digest(value) in sides.known


def inherits(sides: Sides, i: int, bad: set[int]) -> bool:
    """Whether an operation is part of a function that something wrong was handed to: it can introduce nothing."""
    for frame in around(sides.port.ops[i].frame):
        if helper(frame):
            for value in filter(is_array, given(frame).values()):
                found = sides.digest(evaluated(value))
                if any(n < i and sides.port.ops[n].digest == found for n in bad):
                    return True
    return False


def helped(sides: Sides, i: int) -> First | None:
    """Where the caller of such a function chose wrongly: called otherwise it gives what the oracle has in its place.

    Of several within each other the outermost is meant: those inside only hand on.
    """
    found: First | None = None
    for frame in around(sides.port.ops[i].frame):
        if helper(frame) and frame.parent is not None and not frame.parent.file.endswith(DOORS):
            if (mended := _mended(sides, i, frame)) is not None:
                found = mended
                if _crossed(frame):
                    break
            elif found is not None:
                break
            elif (inside := wrong_inside(sides, i, frame)) is not None:
                return inside
            elif _fed(sides, frame) and confirmed(frame) and not _right(sides, frame):
                at = Site(frame.parent.file, frame.asked, frame.parent.code.co_name)
                why = f"{frame.code.co_name} does what its twin does, and the oracle has nothing like it here"
                return First(number_of(sides, i), at, sides.port.ops[i].sites, why)
    return found


def _fed(sides: Sides, frame: Frame) -> bool:
    """Whether all that a call was given is the oracle's."""
    return all(_known(sides, evaluated(one)) for one in given(frame).values() if is_array(one))


def _crossed(frame: Frame) -> bool:
    """Whether a caller has an argument under the name of another one: it is there that the two were exchanged."""
    args = {name: value for name, value in given(frame).items() if is_array(value)}
    held = [] if frame.parent is None else [one for one in frame.parent.writes if one.number <= frame.began]
    return any(
        one.value is value and one.name in args and one.name != name and args[one.name] is not value
        for name, value in args.items()
        for one in held
    )


def _mended(sides: Sides, i: int, frame: Frame) -> First | None:
    trail, called, args = trail_of(sides), function_of(frame), given(frame)
    if trail is None or called is None or frame.parent is None or _right(sides, frame):
        return None
    if any(line in idle(frame.code) for _, line in frame.lines):
        return None  # a statement that does nothing ran in it: what lacks is there, not in what it was given
    if not _again(called, args, frame):
        return None
    wanted, asked = _wanted(sides, frame), (frame.parent, frame.asked, frame.began)
    for change, instead in _changes(sides, args, _retold(sides, frame), of_its_caller(frame)):
        value = called_with(called, instead)
        if value is not None and hard_to_meet(value) and sides.digest(value) in wanted:
            at = _chose(sides, trail, asked, args, change) or site(asked)
            why = f"{frame.code.co_name} gives the oracle's value {change.said}"
            return First(number_of(sides, i), at, sides.port.ops[i].sites, why)
    return None


def _wanted(sides: Sides, frame: Frame) -> set[str]:
    """What a call should have given: what stands in its place, or what the oracle has and nothing stands for."""
    value = value_of(frame)
    made = None if value is None or sides.loosely else last_of(sides.port.ops, sides.digest(value))
    if made in sides.mates:
        return {sides.oracle.ops[sides.mates[made]].digest}
    return {op.digest for op in sides.oracle.ops} - {op.digest for op in sides.port.ops}


@dataclass(frozen=True)
class _Change:
    """One call otherwise: `name` got `value` instead of its own, or `both` were exchanged."""

    said: str
    name: str = ""
    value: Tensor | None = None
    number: float | None = None
    both: tuple[str, ...] = ()


def once_too_often(sides: Sides, i: int) -> Site | None:
    """Where a function was called that is right elsewhere, told the same, and has nothing the oracle has here."""
    trail = trail_of(sides)
    for frame in around(sides.port.ops[i].frame) if trail is not None else ():
        told = _plain(frame)
        arrays = [evaluated(one) for one in given(frame).values() if is_array(one)]
        if trail is None or frame.parent is None or frame.parent.file.endswith(DOORS) or not arrays:
            continue
        if all(_known(sides, one) for one in arrays) and not _right(sides, frame):
            alike = (one for one in trail.watch.frames if one.code is frame.code and one is not frame)
            if any(_plain(one) == told and _right(sides, one) for one in alike):
                return Site(frame.parent.file, frame.asked, frame.parent.code.co_name)
    return None


def _plain(frame: Frame) -> list[Any]:
    """Which objects and numbers a call was given besides arrays."""
    values = [one for one in given(frame).values() if not is_array(one)]
    return [one if isinstance(one, (int, float, str)) else id(one) for one in values]


def _chose(sides: Sides, trail: Trail, asked: Place, args: Given, change: _Change) -> Site | None:
    """Where a caller chose the argument that is wrong; of two under their own names, where these got them."""
    if change.both:
        frame = asked[0]
        writes = [latest(frame, name, asked[2]) for name in change.both]
        own = all(one and one.line and one.value is args[name] for name, one in zip(change.both, writes, strict=True))
        last = max((one for one in writes if one), key=lambda one: one.number, default=None)
        return Site(frame.file, last.line, frame.code.co_name) if own and last is not None else site(asked)
    if not change.name:
        return site(asked)
    if isinstance(args[change.name], float):
        computed = trail.way(*asked, trail.key(args[change.name]) or "")[-1]
        counted = renumbered(sides.oracle.fractions, trail, computed, {repr(change.number)})
        return counted or chosen_as(trail, asked, args[change.name], change.name)
    if args[change.name] is None:
        way = [place for place in trail.way(*asked, NOTHING) if not place[0].file.endswith(DOORS)]
        return decided(way[-1]) if way else None
    right = NOTHING if change.value is None else trail.key(change.value)
    # What the oracle uses too, for something else, is right where it was made.
    meant = sides.used_alike(sides.digest(evaluated(args[change.name])))
    return site(trail.handed(*asked, trail.key(args[change.name]) or "", right, meant=meant))


def _again(called: Callable[..., Any], args: Given, frame: Frame) -> bool:
    """Whether it gives what it gave: nothing else has a part in it."""
    value, before = called_with(called, args), value_of(frame)
    return value is not None and before is not None and np.array_equal(value, before, equal_nan=True)


def _retold(sides: Sides, frame: Frame) -> Iterator[tuple[float, float]]:
    """(the port's, the oracle's) of numbers that operations of a call were told otherwise, one at a time."""
    for i, j in sides.mates.items():
        op, mate = sides.port.ops[i], sides.oracle.ops[j]
        if op.name == mate.name and op.fixed != mate.fixed and any(one is frame for one in around(op.frame)):
            mine, theirs = (set(re.findall(NUMBER, one.fixed)) for one in (op, mate))
            if len(mine - theirs) == len(theirs - mine) == 1:
                yield float((mine - theirs).pop()), float((theirs - mine).pop())


def _changes(
    sides: Sides, args: Given, told: Iterable[tuple[float, float]], callers: Given
) -> Iterator[tuple[_Change, Given]]:
    arrays = [name for name, value in args.items() if is_array(value)]
    for one, other in combinations(arrays, 2):
        if (args[one].shape, args[one].dtype) == (args[other].shape, args[other].dtype):
            exchanged = {**args, one: args[other], other: args[one]}
            yield _Change(f"once {one} and {other} are exchanged", both=(one, other)), exchanged
    for mine, theirs in told:
        for one in (name for name, held in args.items() if isinstance(held, float) and held == mine):
            yield _Change(f"with {one}={theirs}", one, number=theirs), {**args, one: theirs}
    for one, held in callers.items():
        yield _Change(f"with its caller's {one}"), {**args, one: held}
    for one in arrays:
        yield _Change(f"without {one}", one), {**args, one: None}
    for one, value, instead in _instead(sides, args):
        shape = "x".join(map(str, value.shape))
        yield _Change(f"with another {one}: the oracle's is [{shape}]", one, value), instead


def _instead(sides: Sides, args: Given) -> Iterator[tuple[str, Tensor, Given]]:
    """An argument at a time: from an operation of the oracle's that has another of them, or of its values."""
    import mlx.core as mx  # noqa: PLC0415 -- looking at a table needs no framework

    mine = {sides.digest(evaluated(value)) for value in args.values() if is_array(value)}
    beside = [op for op in sides.oracle.ops if mine & {one.digest for one in op.operands}]
    operands = {one.digest: sides.value(one) for op in beside for one in op.operands}
    values = {one: value for one, value in operands.items() if value is not None}
    # And what it has that the port has not, in the form of an argument.
    had = {op.digest for op in sides.port.ops}
    made = {op.digest: op.out for op in sides.oracle.ops if op.digest not in had and op.digest not in values}
    for lacking, found in ((False, values), (True, made)):
        for one, value in found.items():
            for name, held in args.items() if one not in mine else ():
                if (held is None and not lacking) or (is_array(held) and held.shape == value.shape):
                    yield name, value, {**args, name: mx.array(value)}
