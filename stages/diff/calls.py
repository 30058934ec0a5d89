"""A call of the port's that was logged, as something that can be asked: what it was given, what it gave, and again."""

import gc
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from stages.gates import Tensor
from stages.trace.frames import PARAMETER, Frame
from stages.trace.likeness import evaluated, is_array
from stages.trace.whence import DOORS, latest

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


def of_its_caller(frame: Frame) -> Given:
    """What a caller had under the names of arguments that it gave otherwise, or left to their defaults."""
    found: Given = {}
    for name, value in given(frame).items() if frame.parent is not None else ():
        write = None if frame.parent is None else latest(frame.parent, name, frame.began)
        if write is not None and write.value is not value and not (is_array(value) or is_array(write.value)):
            found[name] = write.value
    return found


def helper(frame: Frame) -> bool:
    """Whether a function is handed everything it knows: arrays, numbers and words, no object of the port."""
    whole = not frame.code.co_name.startswith("<") and not frame.code.co_freevars
    kinds = (int, float, bool, str, type(None), tuple)
    args = given(frame).values()
    return whole and any(map(is_array, args)) and all(is_array(one) or isinstance(one, kinds) for one in args)


def value_of(frame: Frame) -> Tensor | None:
    """The array that a call gave; None where it gave something else, or several."""
    value = frame.returns[0][2] if len(frame.returns) == 1 else None
    return evaluated(value) if is_array(value) else None


def function_of(frame: Frame) -> Callable[..., Any] | None:
    """The function that was called."""
    found = (one for one in gc.get_referrers(frame.code) if isinstance(one, FunctionType))
    return next((one for one in found if one.__code__ is frame.code), None)


def called_with(called: Callable[..., Any], args: Given) -> Tensor | None:
    """What a function gives, called once more; None where it refuses, or gives no array."""
    try:
        value = called(**args)
        return evaluated(value) if is_array(value) else None
    except Exception:  # noqa: BLE001 -- a function may refuse what it was never meant to get, in its own words
        return None
