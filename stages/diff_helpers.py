"""Functions of the port that stand for something the oracle does otherwise, in one operation often: judged as one.

Inside such a function nothing need be the oracle's. What it is given and what it gives is: where the first is the
oracle's and the second is not, either its caller chose wrongly or it is wrong itself. It is called again to tell.
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from types import FunctionType
from typing import Any

import numpy as np

from .branches import decided
from .diff_sides import REFUSED, First, Sides, hard_to_meet, number_of, trail_of
from .frames import PARAMETER, Frame
from .gates import Tensor
from .likeness import NOTHING, evaluated, is_array
from .opsites import Site
from .whence import DOORS, Place, Trail, site

Given = dict[str, Any]


def around(frame: Frame | None) -> Iterator[Frame]:
    """The calls around an operation, from the inside out, up to the port's door."""
    while frame is not None and not frame.file.endswith(DOORS):
        yield frame
        frame = frame.parent


def given(frame: Frame) -> Given:
    """What a function was called with, by name."""
    names = frame.code.co_varnames[: frame.code.co_argcount + frame.code.co_kwonlyargcount]
    held = {one.name: one.value for one in frame.writes if one.line == PARAMETER}
    return {name: held[name] for name in names if name in held}


def helper(frame: Frame) -> bool:
    """Whether a function is handed everything it knows: arrays, numbers and words, no object of the port."""
    whole = not frame.code.co_name.startswith("<") and not frame.code.co_freevars
    kinds = (int, float, bool, str, type(None), tuple)
    args = given(frame).values()
    return whole and any(map(is_array, args)) and all(is_array(one) or isinstance(one, kinds) for one in args)


def settled(sides: Sides) -> set[int]:
    """Operations that are part of a function whose result is the oracle's: whatever they give, it comes to the same."""
    ops = sides.port.ops
    return {i for i, op in enumerate(ops) if not sides.good(i) and any(_right(sides, one) for one in around(op.frame))}


def _right(sides: Sides, frame: Frame) -> bool:
    if frame not in sides.results:
        value = frame.returns[0][2] if len(frame.returns) == 1 else None
        sides.results[frame] = is_array(value) and _known(sides, evaluated(value))
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
    """Where the caller of such a function chose wrongly: called otherwise it gives what the oracle has."""
    trail = trail_of(sides)
    for frame in around(sides.port.ops[i].frame) if trail is not None else ():
        if not helper(frame) or frame.parent is None or frame.parent.file.endswith(DOORS) or _right(sides, frame):
            continue
        called, args = _function(frame), given(frame)
        if called is None or not _again(called, args, frame):
            continue
        asked: Place = (frame.parent, frame.asked, frame.began)
        for change, instead in _changes(sides, args):
            value = _called(called, instead)
            if trail is not None and value is not None and _known(sides, value):
                at = _chose(trail, asked, args, change) or site(asked)
                why = f"{frame.code.co_name} gives the oracle's value {change.said}"
                return First(number_of(sides, i), at, sides.port.ops[i].sites, why)
    return None


@dataclass(frozen=True)
class _Change:
    """One call otherwise: `name` got `value` instead of its own; `value` is nothing where two were exchanged."""

    said: str
    name: str = ""
    value: Tensor | None = None


def _chose(trail: Trail, asked: Place, args: Given, change: _Change) -> Site | None:
    """Where a caller chose the argument that is wrong."""
    if not change.name:
        return site(asked)
    if args[change.name] is None:
        way = [place for place in trail.way(*asked, NOTHING) if not place[0].file.endswith(DOORS)]
        return decided(way[-1]) if way else None
    right = NOTHING if change.value is None else trail.key(change.value)
    return site(trail.handed(*asked, trail.key(args[change.name]) or "", right, meant=False))


def _function(frame: Frame) -> Callable[..., Any] | None:
    found = (one for one in gc.get_referrers(frame.code) if isinstance(one, FunctionType))
    return next((one for one in found if one.__code__ is frame.code), None)


def _called(called: Callable[..., Any], args: Given) -> Tensor | None:
    try:
        value = called(**args)
        return evaluated(value) if is_array(value) else None
    except (*REFUSED, AttributeError):
        return None


def _again(called: Callable[..., Any], args: Given, frame: Frame) -> bool:
    """Whether it gives what it gave: nothing else has a part in it."""
    value, before = _called(called, args), frame.returns[0][2] if len(frame.returns) == 1 else None
    return value is not None and is_array(before) and np.array_equal(value, evaluated(before), equal_nan=True)


def _changes(sides: Sides, args: Given) -> Iterator[tuple[_Change, Given]]:
    arrays = [name for name, value in args.items() if is_array(value)]
    for one, other in combinations(arrays, 2):
        if args[one].shape == args[other].shape:
            exchanged = {**args, one: args[other], other: args[one]}
            yield _Change(f"once {one} and {other} are exchanged"), exchanged
    for one in arrays:
        yield _Change(f"without {one}", one), {**args, one: None}
    for one, value, instead in _instead(sides, args):
        shape = "x".join(map(str, value.shape))
        yield _Change(f"with another {one}: the oracle's is [{shape}]", one, value), instead


def _instead(sides: Sides, args: Given) -> Iterator[tuple[str, Tensor, Given]]:
    """An argument at a time, taken from an operation of the oracle's that has another of them."""
    import mlx.core as mx  # noqa: PLC0415 -- looking at a table needs no framework

    mine = {sides.digest(evaluated(value)) for value in args.values() if is_array(value)}
    tried: set[str] = set()
    for op in sides.oracle.ops:
        if not mine & {one.digest for one in op.operands}:
            continue
        for operand in op.operands:
            value = sides.value(operand)
            if value is None or operand.digest in mine | tried:
                continue
            tried.add(operand.digest)
            for name, held in args.items():
                if held is None or (is_array(held) and held.shape == value.shape):
                    yield name, value, {**args, name: mx.array(value)}
