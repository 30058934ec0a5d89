"""A function of the port that does what its framework has whole: is it wrong itself? Its twin, called alike, tells.

A twin is the framework's function of the same name, or the function itself on the way that it takes elsewhere: where
a question that it asks another function of the port is answered the other way round.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stages.gates import Tensor
from stages.trace.frames import Frame
from stages.trace.oplog import OpLog
from stages.trace.sites import Site
from stages.trace.whence import DOORS

from .calls import Given, called_with, function_of, given, helper, value_of
from .near import NEAR, Near
from .sides import First, Sides, number_of


def wrong_inside(sides: Sides, i: int, frame: Frame) -> First | None:
    """The innermost function within a call that its twin contradicts, at the line of it that computes most.

    Args:
        sides: The logs.
        i: An operation that goes wrong within.
        frame: The call of a function that is given only what is the oracle's.
    """
    if not contradicted(frame) or not any(
        one is not None and sides.digest(one) in sides.known for one in _twins(frame)
    ):
        return None  # what gives nothing the oracle has is no twin, only called so
    inner = frame
    while (deeper := next((one for one in _within(inner) if contradicted(one)), None)) is not None:
        inner = deeper
    lines = Counter(op.sites[-1].line for op in sides.port.ops if op.frame is inner and op.sites)
    line = max(lines, key=lambda one: (lines[one], one)) if lines else inner.returns[-1][1]
    at = Site(inner.file, line, inner.code.co_name)
    path = (*sides.port.ops[i].sites[:-1], at)
    return First(number_of(sides, i), at, path, f"{inner.code.co_name} gives something else than its twin does")


def contradicted(frame: Frame) -> bool:
    """Whether a call gave something else than every twin of its function that gives anything."""
    mine = value_of(frame)
    if mine is None or not helper(frame):
        return False
    twins = [one for one in _twins(frame) if one is not None and one.shape == mine.shape]
    return bool(twins) and not any(_alike(one, mine) for one in twins)


def confirmed(frame: Frame) -> bool:
    """Whether a twin of a call's function gives what it gave."""
    mine = value_of(frame)
    twins = [] if mine is None or not helper(frame) else _twins(frame)
    return any(one is not None and mine is not None and one.shape == mine.shape and _alike(one, mine) for one in twins)


def _alike(theirs: Tensor, mine: Tensor) -> bool:
    return Near(OpLog(), NEAR).alike(mine, theirs)


def _within(frame: Frame) -> Iterator[Frame]:
    for child in frame.children:
        if not child.file.endswith(DOORS):
            yield child
            yield from _within(child)


def _twins(frame: Frame) -> Iterator[Tensor | None]:
    args, called = given(frame), function_of(frame)
    for library in _libraries():
        twin = getattr(library, frame.code.co_name, None)
        if callable(twin):
            values = list(args.values())
            yield _said(twin, values, {"axis": -1})
            yield _said(twin, values, {})
    for child in frame.children:
        answer = child.returns[-1][2] if len(child.returns) == 1 else None
        if isinstance(answer, bool) and called is not None:
            with _answering(child, not answer) as possible:
                yield called_with(called, args) if possible else None


def _libraries() -> list[Any]:
    return [sys.modules[name] for name in ("mlx.core", "mlx.core.fast", "mlx.nn") if name in sys.modules]


def _said(twin: Callable[..., Any], values: list[Any], named: Given) -> Tensor | None:
    return called_with(lambda: twin(*values, **named), {})


@contextmanager
def _answering(asked: Frame, answer: bool) -> Iterator[bool]:
    """The function of a call gives this answer, wherever the port has it; says whether it has it anywhere."""
    original = function_of(asked)
    places = [
        (module, name)
        for title, module in list(sys.modules.items())
        if title.startswith("port.")
        for name, value in list(vars(module).items())
        if original is not None and value is original
    ]
    for module, name in places:
        setattr(module, name, lambda *_args, **_named: answer)
    try:
        yield bool(places)
    finally:
        for module, name in places:
            setattr(module, name, original)
