"""Which line is to be looked at: an operation that goes wrong is often right itself, and what it is given is not."""

import re
from contextlib import suppress
from typing import Any

from stages.trace.branches import skipped
from stages.trace.frames import PARAMETER, Frame
from stages.trace.likeness import NOTHING, key
from stages.trace.oplog import Op, Operand, OpLog
from stages.trace.origin import number_first
from stages.trace.sites import Site
from stages.trace.whence import DOORS, Place, Trail, site

from .choice import chosen, counted
from .instead import taken_in_turn
from .lacking import lacking_at
from .numbers import other_number
from .options import renumbered
from .parameters import bound_at
from .sides import Sides, trail_of

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
            turned = isinstance(value, int) and abs(value) > 1 and repr(-value) in theirs and key(value) in sides.keys
            if turned or _used_rightly(sides, trail, op, value) or _at_hand_here(trail, op, value, theirs - mine):
                return None  # the number is the oracle's: with the other sign, or somewhere else, it is used rightly
            whole = isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and bool(theirs))
            if asked is not None and whole and (found := counted(trail, op, value)) is not None and not found.door:
                return found.site
            start: Place = (op.frame, op.sites[-1].line, op.when)
            ways = [trail.way(*start, key(one) or "") for one in _signed(value)]
            way = max(ways, key=len)
            at = renumbered(sides.oracle.fractions, trail, way[-1], theirs) if isinstance(value, float) else None
            if (at := at or outside(_strange(sides, trail, way))) is not None:
                return at
            # Held by something whose inside is no code of the port's.
            early = number_first(trail, value) if isinstance(value, float) and value % 1 else None
            return None if early is None else site(early)
    return None


def _used_rightly(sides: Sides, trail: Trail, op: Op, value: Any) -> bool:
    """Whether a number is told by the same name to another operation of the same call, and to its pair, rightly."""
    if isinstance(value, (bool, str)) or op.frame is None:
        return False
    names = _named(trail, op, value)
    others = (n for n, one in enumerate(sides.port.ops) if one.frame is op.frame and one is not op)
    return bool(names) and any(
        value in sides.port.ops[n].told
        and names & _named(trail, sides.port.ops[n], value)
        and n in sides.mates
        and repr(value) in re.findall(NUMBER, sides.oracle.ops[sides.mates[n]].fixed)
        and sides.good(n)
        for n in others
    )


def _at_hand_here(trail: Trail, op: Op, value: Any, theirs: set[str]) -> bool:
    """Whether the line of an operation reads the oracle's number by a name, and made another of it."""
    assert op.frame is not None
    read = [one for _, one, _ in trail.names(op.frame, op.sites[-1].line, op.when) if type(one) in (int, float)]
    right = [one for one in read if abs(one) > 1 and {repr(one), repr(-one)} & theirs]
    return bool(right) and not any(one in (value, -value) for one in read)


def _named(trail: Trail, op: Op, value: Any) -> set[tuple[str, ...]]:
    """The names by which the line of an operation reads a number; what an object keeps may be wrong from before."""
    assert op.frame is not None
    read = trail.names(op.frame, op.sites[-1].line, op.when) if op.sites else []
    return {path for path, one, _ in read if len(path) == 1 and type(one) is type(value) and one == value}


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


def at_hand(sides: Sides, i: int, j: int) -> Site | None:
    """Where an operation was told a word instead of an array that was at hand."""
    op, trail = sides.port.ops[i], trail_of(sides)
    mine = {one.digest for one in op.operands}
    values = [sides.value(one) for one in sides.oracle.ops[j].operands if one.digest not in mine]
    words = [one for one in op.told if isinstance(one, str)]
    if trail is None or len(values) != 1 or values[0] is None or sides.digest(values[0]) not in sides.made:
        return None
    right = trail.key(values[0]) or ""
    return next((at for one in words if (at := chosen(trail, op, None, trail.key(one) or "", right)) is not None), None)


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
            place = trail.handed(op.frame, op.sites[-1].line, op.when, wrong, None, meant=0)
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
    known = (
        taken_in_turn(sides, mine.digest, like.digest)
        or lacking_at(sides, i, mine, like)
        or _chosen(sides, trail, i, mine, like)
        or other_number(sides, mine.op, like.digest)
        or _by_chance(sides, op, mine)
        or bound_at(sides, i, mine, like)
    )
    if known is not None or value is None:
        return known or caller(sides.port, i)
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


def _by_chance(sides: Sides, op: Op, mine: Operand) -> Site | None:
    """Where an operation got what was made on its own line, wrongly, though the oracle has the value elsewhere."""
    maker, mate = None if mine.op < 0 else sides.port.ops[mine.op], sides.mates.get(mine.op)
    right = mate is not None and sides.oracle.ops[mate].digest == mine.digest
    here = maker is not None and (maker.frame, maker.sites) == (op.frame, op.sites)
    return op.sites[-1] if here and not right else None


def _chosen(sides: Sides, trail: Trail, i: int, mine: Operand, like: Operand) -> Site | None:
    """Where the wrong one was taken of two that were at hand."""
    op, value, right = sides.port.ops[i], sides.mine(mine), sides.value(like)
    if value is None or right is None or like.digest not in sides.made:
        return None
    maker = None if mine.op < 0 else sides.port.ops[mine.op]
    if maker is not None and like.digest in {one.digest for one in maker.operands} and _once_more(sides, maker):
        return caller(sides.port, mine.op)
    return chosen(trail, op, maker, trail.key(value) or "", trail.key(right) or "")


def early_at(sides: Sides, i: int, differing: list[tuple[int, Operand, Operand]]) -> Site | None:
    """Where something was handed on before the oracle's last operation on it."""
    return next((at for _, mine, like in differing if (at := lacking_at(sides, i, mine, like)) is not None), None)


def _once_more(sides: Sides, op: Op) -> bool:
    """Whether the port makes a value more often than the oracle: one of them is for something else."""
    mine, theirs = (sum(one.digest == op.digest for one in log.ops) for log in (sides.port, sides.oracle))
    return mine > theirs > 0


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
