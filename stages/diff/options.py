"""A number computed rightly of other numbers than the oracle's: where those were chosen.

Of every fraction that a call gave it is kept which whole numbers it was called with. Where both sides' calls give
another number, called with others, it is these that are walked back to what one of them was given, or taken for.
"""

from typing import Any

from stages.trace.expressions import given_as
from stages.trace.frames import Frame, Watch
from stages.trace.sites import Site
from stages.trace.slices import Input, inputs, spot
from stages.trace.whence import Place, Trail

from .calls import given

LONG = 40  # statements on a way


def fractions(watch: Watch) -> dict[str, tuple[int, ...]]:
    """The whole numbers that a call was given, by the fraction that it gave, as text."""
    found = {}
    for frame in watch.frames:
        value = frame.returns[-1][2] if frame.returns else None
        if isinstance(value, float) and value % 1:
            found[repr(value)] = tuple(_wholes(frame).values())
    return found


def renumbered(theirs: dict[str, tuple[int, ...]], trail: Trail, at: Place, asked: set[str]) -> Site | None:
    """Where the whole numbers that a number was computed of were chosen; None where these are not at fault.

    Args:
        theirs: Of the oracle's fractions, what each was computed of.
        trail: The way back.
        at: Where the port's was computed: the last line of a function.
        asked: The oracle's, as text.
    """
    mine = _wholes(at[0])
    right = next((theirs[one] for one in sorted(asked) if one in theirs), None)
    if right is None or len(right) != len(mine):
        return None
    found = {chosen_as(trail, at, value, name) for name, value in mine.items() if value not in right}
    return found.pop() if len(found) == 1 else None


def _wholes(frame: Frame) -> dict[str, int]:
    return {name: value for name, value in given(frame).items() if _whole(value)}


def chosen_as(trail: Trail, at: Place, value: float, name: str) -> Site | None:
    """The expression that gave a field its number, back through what handed on the number, or what has it."""
    here, carrier, names = spot(at[0], at[2], at[1]), None, [name]
    for _ in range(LONG):
        read = [one for one in inputs(trail, here) if one.source is not None]
        one = _onward(read, value, carrier, name)
        if one is None:
            found = (given_as(here.frame.file, here.last, one) for one in names)
            expression = next((one for one in found if one is not None), None)
            line = here.first if expression is None else expression.lineno
            return Site(here.frame.file, line, here.frame.code.co_name)
        value, name = (one.value, one.name) if _number(one.value) else (value, name)
        carrier = None if _number(one.carrier) else one.carrier
        names = [name] if carrier is None else [*names, one.name]  # of what has it, and of what has that
        if one.source is None or one.source.door:
            return None
        here = one.source
    return None


def _onward(read: list[Input], value: float, carrier: Any, name: str) -> Input | None:
    """Of what a statement read, what has the number: by the name it had, by another, or what it was counted from."""
    if carrier is not None:
        return next((one for one in read if one.value is carrier), None)
    same = [one for one in read if _number(one.value) and one.value == value]
    same.sort(key=lambda one: one.name != name)
    counted = [one for one in read if _whole(one.value)]
    return same[0] if same else counted[0] if len(counted) == 1 else None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
