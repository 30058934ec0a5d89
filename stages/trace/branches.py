"""Which question decided that a line was reached: of a line that has no say in what it gives, that is what matters."""

import dis
from types import CodeType

from .frames import assigned, reads
from .sites import Site
from .whence import Place, site


def decided(at: Place) -> Site:
    """The place itself; where it only gives a constant, the line of the `if` that led there."""
    frame, line, _ = at
    before = None if reads(frame.code).get(line) else asked_before(frame.code, line)
    return site(at) if before is None else Site(frame.file, before, frame.code.co_name)


def asked_before(code: CodeType, line: int) -> int | None:
    """The line of the question right before a line; None where none is."""
    before = None
    for one in dis.get_instructions(code):
        number = one.positions.lineno if one.positions else None
        if number == line:
            break
        # What is always so is asked by nothing: a NOP stands for the line.
        before = number if number and ("JUMP" in one.opname or one.opname == "NOP") else before if not number else None
    return before


def skipped(at: Place, used: int, name: str) -> Site | None:
    """The question that kept a name from getting another value between a place and the line that used it."""
    frame, line, _ = at
    done = {one.line for one in frame.writes if one.name == name}
    for other in sorted(assigned(frame.code), reverse=True):
        if line < other < used and other not in done and name in assigned(frame.code)[other]:
            asked = asked_before(frame.code, other)
            return None if asked is None else Site(frame.file, asked, frame.code.co_name)
    return None
