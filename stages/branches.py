"""Which question decided that a line was reached: of a line that has no say in what it gives, that is what matters."""

import dis

from .frames import reads
from .opsites import Site
from .whence import Place, site


def decided(at: Place) -> Site:
    """The place itself; where it only gives a constant, the line of the `if` that led there."""
    frame, line, _ = at
    if reads(frame.code).get(line):
        return site(at)
    before = None
    for one in dis.get_instructions(frame.code):
        number = one.positions.lineno if one.positions else None
        if number == line:
            break
        # What is always so is asked by nothing: a NOP stands for the line.
        before = number if number and ("JUMP" in one.opname or one.opname == "NOP") else before if not number else None
    return site(at) if before is None else Site(frame.file, before, frame.code.co_name)
