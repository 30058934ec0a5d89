"""Functions of the port that stand for something the oracle does otherwise, in one operation often: judged as one.

Inside such a function nothing need be the oracle's. What it is given and what it gives is: where the first is the
oracle's and the second is not, either its caller chose wrongly or it is wrong itself. It is called again to tell.
"""

import gc
from collections.abc import Callable, Iterator
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
from .whence import DOORS, Place, site

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
    if trail is None:
        return None
    for frame in around(sides.port.ops[i].frame):
        if not helper(frame) or frame.parent is None or frame.parent.file.endswith(DOORS) or _right(sides, frame):
            continue
        called, args = _function(frame), given(frame)
        if called is None or not _again(sides, called, args, frame):
            continue
        name = frame.code.co_name
        asked: Place = (frame.parent, frame.asked, frame.began)
        for (one, other), swapped in _exchanged(args):
            if _gives(sides, called, swapped):
                why = f"{name} gives the oracle's value once {one} and {other} are exchanged"
                return _first(sides, i, site(asked), why)
        for one, without in _dropped(args):
            if _gives(sides, called, without):
                place = trail.handed(*asked, trail.key(args[one]) or "", NOTHING, meant=False)
                return _first(sides, i, site(place), f"{name} gives the oracle's value without {one}")
        for one, value, instead in _instead(sides, args):
            if _gives(sides, called, instead):
                shape = "x".join(map(str, value.shape))
                why = f"{name} gives the oracle's value with another {one}: the oracle's is [{shape}]"
                if args[one] is None:
                    way = [place for place in trail.way(*asked, NOTHING) if not place[0].file.endswith(DOORS)]
                    at = decided(way[-1]) if way else None
                else:
                    wrong, right = trail.key(args[one]) or "", trail.key(value)
                    at = site(trail.handed(*asked, wrong, right, meant=False))
                return _first(sides, i, at or site(asked), why)
    return None


def _first(sides: Sides, i: int, at: Site, why: str) -> First:
    return First(number_of(sides, i), at, sides.port.ops[i].sites, why)


def _function(frame: Frame) -> Callable[..., Any] | None:
    found = (one for one in gc.get_referrers(frame.code) if isinstance(one, FunctionType))
    return next((one for one in found if one.__code__ is frame.code), None)


def _called(called: Callable[..., Any], args: Given) -> Tensor | None:
    try:
        value = called(**args)
        return evaluated(value) if is_array(value) else None
    except (*REFUSED, AttributeError):
        return None


def _again(sides: Sides, called: Callable[..., Any], args: Given, frame: Frame) -> bool:
    """Whether it gives what it gave: nothing else has a part in it."""
    value, before = _called(called, args), frame.returns[0][2] if len(frame.returns) == 1 else None
    return value is not None and is_array(before) and np.array_equal(value, evaluated(before), equal_nan=True)


def _gives(sides: Sides, called: Callable[..., Any], args: Given) -> bool:
    value = _called(called, args)
    return value is not None and _known(sides, value)


def _exchanged(args: Given) -> Iterator[tuple[tuple[str, str], Given]]:
    arrays = [name for name, value in args.items() if is_array(value)]
    for one, other in combinations(arrays, 2):
        if args[one].shape == args[other].shape:
            yield (one, other), {**args, one: args[other], other: args[one]}


def _dropped(args: Given) -> Iterator[tuple[str, Given]]:
    for name, value in args.items():
        if is_array(value):
            yield name, {**args, name: None}


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
