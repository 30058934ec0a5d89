"""Questions of membership that the port answers otherwise than the oracle: which element, and who put it in or left it.

Which sets two programs keep, and in what, says little. What they answer when they are asked for one and the same number
can be compared.
"""

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

from stages.trace.frames import Watch
from stages.trace.slices import Input, Spot, inputs, spot
from stages.trace.whence import Trail

from .order import Gap
from .sides import First, Sides, step_at, trail_of

LONG = 40  # statements on a way
END = 1 << 60
KINDS = (set, frozenset, list, tuple, dict)


@dataclass(frozen=True)
class Question:
    """Whether a number is in a container, asked once.

    Attributes:
        at: The statement.
        number: What was asked for.
        held: What should have it, as the statement read it.
        answer: What came of it.
    """

    at: Spot
    number: int
    held: Input
    answer: bool


def questions(trail: Trail) -> Iterator[Question]:
    """Every such question of a log of calls, call by call; of statements that ask only one."""
    for frame in trail.watch.frames:
        lines = asking(frame.code)
        for when, line in frame.lines if lines else ():
            if line not in lines:
                continue
            at = spot(frame, when, whole=True)
            read = inputs(trail, at)
            numbers = list(dict.fromkeys(one.value for one in read if _number(one.value)))
            held = [one for one in read if isinstance(one.value, KINDS) and all(map(_number, one.value))]
            if len(numbers) == len(held) == 1:
                # What a container has now it may not have had then; what was given out does not change.
                gave = [value for number, _, value in frame.returns if at.start <= number <= at.end]
                answer = gave[-1] if gave and isinstance(gave[-1], bool) else numbers[0] in held[0].value
                yield Question(at, numbers[0], held[0], answer)


def answers(watch: Watch) -> set[tuple[int, bool]]:
    """What a side was asked for, and what it answered."""
    return {(one.number, one.answer) for one in questions(Trail(watch))}


def misjudged(sides: Sides, gap: Gap | None) -> First | None:
    """Where the port decides a question of membership otherwise than the oracle, before the two part.

    Args:
        sides: The logs.
        gap: Where they part; None: no operation does.
    """
    trail, ops, said = trail_of(sides), sides.port.ops, sides.oracle.asked
    if trail is None or not said:
        return None
    before = None if gap is None else gap.before
    after = None if gap is None else gap.port[0] if gap.port else gap.after
    since, until = 0 if before is None else ops[before].when, END if after is None else ops[after].when
    for one in sorted(questions(trail), key=lambda each: each.at.start):
        if since <= one.at.start <= until and not one.at.door:
            asked = one.number, one.answer
            if (one.number, not one.answer) in said and asked not in said:
                at = _entered(trail, one).site
                kept, other = ("one", "none") if one.answer else ("none", "one")
                why = f"{one.number} is {kept} of {len(one.held.value)} here, and {other} of the oracle's"
                return First(step_at(sides, at), at, (at,), why)
    return None


def _entered(trail: Trail, asked: Question) -> Spot:
    """The statement by which a container has a number, or has it no more: back through what it was made of."""
    at, one, number, kept = asked.at, asked.held, asked.number, set(asked.held.value)
    for _ in range(LONG):
        if one.source is None or one.source.door:
            break
        at = one.source
        read = [each for each in inputs(trail, at) if _has(each.value, number) is not None]
        having = [each for each in read if _has(each.value, number)]
        if not asked.answer:
            if having:
                break  # it is lost here
            having = [each for each in read if isinstance(each.value, KINDS) and set(each.value) == kept]
        if not having:
            break
        one = having[0]
    return at


def _has(value: Any, number: int) -> bool | None:
    """Whether a container has a number, or is it; None of anything else."""
    if isinstance(value, KINDS) and all(map(_number, value)):
        return number in value
    return value == number if _number(value) else None


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@cache
def asking(code: CodeType) -> frozenset[int]:
    """Lines on which it is asked whether something is in something."""
    return frozenset(
        one.positions.lineno
        for one in dis.get_instructions(code)
        if one.opname == "CONTAINS_OP" and one.positions and one.positions.lineno
    )
