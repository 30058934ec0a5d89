"""Which line is to be looked at: an operation that goes wrong is often right itself, and what it is given is not."""

import re
from contextlib import suppress
from typing import Any

from .branches import skipped
from .diff_choice import chosen, counted
from .diff_decided import left_undone
from .diff_early import left_early
from .diff_sides import Sides, named_line, trail_of
from .frames import PARAMETER, Frame
from .likeness import NOTHING, key
from .oplog import Op, Operand, OpLog
from .opsites import Site
from .origin import number_first
from .whence import DOORS, Place, Trail, site

NUMBER = r"-?\d[\d.e+-]*"
NEAR = 40  # operations before and after one, among which a function that does more shows itself


def told_at(sides: Sides, i: int, told: set[str], asked: set[str] | None = None) -> Site | None:
    """Where a number or word that an operation was told, otherwise than the oracle's, was computed.

    Args:
        sides: The logs.
        i: The operation.
        told: What it was told, as text.
        asked: What the oracle's was.
    """
    op, trail = sides.port.ops[i], trail_of(sides)
    if trail is None or op.frame is None or not op.sites:
        return None
    mine, theirs = (set(re.findall(NUMBER, " ".join(one))) for one in (told, asked or set()))
    for value in op.told:
        if isinstance(value, (int, float, str)) and (repr(value) in mine - theirs or f"'{value}'" in " ".join(told)):
            if isinstance(value, int) and abs(value) > 1 and repr(-value) in theirs and key(value) in sides.keys:
                return None  # the number is the oracle's: with the other sign, it is used otherwise
            whole = isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and bool(theirs))
            if asked is not None and whole and (found := counted(trail, op, value)) is not None and not found.door:
                return found.site
            start: Place = (op.frame, op.sites[-1].line, op.when)
            ways = [trail.way(*start, key(one) or "") for one in _signed(value)]
            if (at := outside(_strange(sides, trail, max(ways, key=len)))) is not None:
                return at
            # Held by something whose inside is no code of the port's.
            early = number_first(trail, value) if isinstance(value, float) and value % 1 else None
            return None if early is None else site(early)
    return None


def _signed(value: Any) -> tuple[Any, ...]:
    """A number is often read by name and negated on the spot."""
    return (value, -value) if isinstance(value, (int, float)) and not isinstance(value, bool) else (value,)


def _strange(sides: Sides, trail: Trail, way: list[Place]) -> list[Place]:
    """A way to what a number was computed of, where the oracle has all of that but one number."""
    frame, line, until = way[-1]
    known = sides.keys | {found for one in sides.told if (found := _number_key(one)) is not None}
    numbers = {
        path[0]: key(value) or ""
        for path, value, _ in trail.names(frame, line, until)
        if len(path) == 1 and isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    strange = {name: found for name, found in numbers.items() if found not in known}
    return way + trail.way(frame, line, until, *strange.values()) if len(strange) == 1 else way


def _number_key(text: str) -> str | None:
    with suppress(ValueError):
        return key(float(text))
    return None


def seeded_at(sides: Sides, i: int) -> Site | None:
    """Where the generator that an operation draws from was seeded last, if it was more than once."""
    seeds = [at for name, count, at in sides.port.forms if name == "seed" and int(count) <= i]
    return seeds[-1] if len(seeds) > 1 else None


def withheld_at(sides: Sides, i: int) -> Site | None:
    """Where an operation got nothing instead of an array."""
    op, trail = sides.port.ops[i], trail_of(sides)
    if trail is None or op.frame is None or not op.sites:
        return None
    return outside(trail.way(op.frame, op.sites[-1].line, op.when, NOTHING))


def unmasked_at(sides: Sides, i: int) -> Site | None:
    """Where flags that an operation got should have been made into others first, as the oracle does."""
    op, trail = sides.port.ops[i], trail_of(sides)
    if trail is None or op.frame is None or not op.sites:
        return None
    paired = set(sides.mates.values())
    lacking = [theirs for j, theirs in enumerate(sides.oracle.ops) if j not in paired]
    for one in op.operands:
        value = sides.mine(one)
        if value is None or value.dtype != bool:
            continue
        lacks = [
            theirs
            for theirs in lacking
            if one.digest in {o.digest for o in theirs.operands} and theirs.out.shape == one.shape
        ]
        if lacks:
            wrong = trail.key(value) or ""
            place = trail.handed(op.frame, op.sites[-1].line, op.when, wrong, None, meant=False)
            others = [sides.value(other) for other in lacks[0].operands if other.digest != one.digest]
            return site(_at_hand(trail, place, wrong, {key(other) or "" for other in others}))
    return None


def _at_hand(trail: Trail, place: Place, wrong: str, others: set[str]) -> Place:
    """On a value's way back the function that was given all it should have been made of; else the place itself."""
    for at in trail.way(*place, wrong):
        given = {trail.key(one.value) for one in at[0].writes if one.line == PARAMETER}
        if at[0] is not place[0] and others and others <= given:
            return at
    return place


def outside(way: list[tuple[Frame, int, int]]) -> Site | None:
    """The last place on a way that is the port's own, not its door to the harness."""
    mine = [at for at in way if not at[0].file.endswith(DOORS)]
    return site(mine[-1]) if mine else None


def handed_at(sides: Sides, i: int, differing: list[tuple[int, Operand, Operand]]) -> Site | None:
    """Where an operation that is right itself got the wrong array."""
    op, trail = sides.port.ops[i], trail_of(sides)
    if trail is None or op.frame is None or not op.sites or not differing:
        return caller(sides.port, i)
    _, mine, like = differing[0]
    value, right = sides.mine(mine), sides.value(like)
    if (early := _early(sides, i, mine, like) or _chosen(sides, trail, i, mine, like)) is not None:
        return early
    if value is None:
        return caller(sides.port, i)
    wrong, wanted = trail.key(value) or "", None if right is None else trail.key(right)
    place = trail.handed(op.frame, op.sites[-1].line, op.when, wrong, wanted, meant=sides.used_alike(mine.digest))
    at_hand = any(trail.key(one.value) == wanted for one in op.frame.writes if one.number <= op.when)
    if mine.op < 0 and place[:2] == (op.frame, op.sites[-1].line) and not at_hand:
        return caller(sides.port, i)  # a weight: whose matrix or norm it is, is said where that is called
    if place[0] is op.frame:
        names = [
            path[0] for path, one, _ in trail.names(op.frame, op.sites[-1].line, op.when) if trail.key(one) == wrong
        ]
        if names and (asked := skipped(place, op.sites[-1].line, names[0])) is not None:
            return asked
    return site(place)


def _chosen(sides: Sides, trail: Trail, i: int, mine: Operand, like: Operand) -> Site | None:
    """Where the wrong one was taken of two that were at hand."""
    op, value, right = sides.port.ops[i], sides.mine(mine), sides.value(like)
    if value is None or right is None or like.digest not in {one.digest for one in sides.port.ops[:i]}:
        return None
    maker = None if mine.op < 0 else sides.port.ops[mine.op]
    return chosen(trail, op, maker, trail.key(value) or "", trail.key(right) or "")


def early_at(sides: Sides, i: int, differing: list[tuple[int, Operand, Operand]]) -> Site | None:
    """Where something was handed on before the oracle's last operation on it."""
    return next((at for _, mine, like in differing if (at := _early(sides, i, mine, like)) is not None), None)


def _early(sides: Sides, i: int, mine: Operand, like: Operand) -> Site | None:
    """Of an operation that got something before the oracle's last operation on it: where that one belongs."""
    op, lacking = sides.port.ops[i], None if like.op < 0 else sides.oracle.ops[like.op]
    if lacking is None or mine.digest not in {one.digest for one in lacking.operands}:
        return None
    # Where the port has it, only later, the two are the wrong way round.
    later = next((n for n, j in sides.mates.items() if j == like.op), None)
    if later is not None and later > i:
        return between(sides.port.ops[later].sites, op.sites)
    trail = trail_of(sides)
    if trail is not None and mine.op >= 0 and like.op not in sides.mates.values():
        idle = left_undone(sides, trail, sides.port.ops[mine.op], op)
        if idle is not None and not idle.door:
            return idle.site
        if (left := left_early(sides, mine, op, lacking)) is not None:
            return left
    same = [at for name, found, at in sides.port.forms if (name, found) == (lacking.name, mine.digest)]
    if same:
        return same[-1]
    j = sides.mates.get(i)
    together = mine.op >= 0 and j is not None and named_line(lacking) == named_line(sides.oracle.ops[j])
    return (between(sides.port.ops[mine.op].sites, op.sites) or op.sites[-1]) if together and op.sites else None


def between(made: tuple[Site, ...], used: tuple[Site, ...]) -> Site | None:
    """The innermost function that two operations passed through, at its line for the second."""
    found = used[0] if used else None
    for a, b in zip(made, used, strict=False):
        if (a.file, a.function) != (b.file, b.function):
            break
        found = b
        if a.line != b.line:
            break
    return found


def gave_at(sides: Sides, op: Op, *, within: bool) -> Site | None:
    """The line of the port that gave out a value: where it left the port's own functions for the cut."""
    trail = trail_of(sides)
    return None if trail is None else trail.given_out(op.out, op.frame, within=within)


def caller(log: OpLog, i: int) -> Site | None:
    """The line that asked for an operation: out of functions that do nothing else, a matrix's or a norm's own."""
    path = log.ops[i].sites
    for depth in range(len(path) - 1, 0, -1):
        site, around = path[depth], path[:depth]
        others = (log.ops[n].sites for n in range(max(i - NEAR, 0), min(i + NEAR, len(log.ops))) if n != i)
        alike = [
            one
            for one in others
            if one[:depth] == around
            and [(o.file, o.function) for o in one[depth : depth + 1]] == [(site.file, site.function)]
            and one[depth].line != site.line
        ]
        if alike or path[depth - 1].file.endswith("cuts.py"):
            return site
    return path[0] if path else None
