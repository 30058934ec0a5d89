"""An output of several rows that lacks some: the innermost function that was given all of them, and gave fewer."""

from collections import Counter
from typing import Any

from stages.gates import Tensor
from stages.trace.frames import PARAMETER, Frame
from stages.trace.likeness import key, members
from stages.trace.sites import Site
from stages.trace.whence import DOORS, Trail

from .sides import First, Sides, step_at, trail_of

Rows = Counter[str]


def dropped(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]]) -> First | None:
    """Where the port drops a row of an output; None where it drops none, or never had it."""
    trail = trail_of(sides)
    if trail is None:
        return None
    for name, (oracle, mine) in outs.items():
        if oracle.ndim and mine.shape[1:] == oracle.shape[1:] and 0 < len(mine) < len(oracle):
            right, wrong = (Counter(key(row) or "" for row in rows) for rows in (oracle, mine))
            frames = [one for one in trail.watch.frames if _drops(trail, one, right, wrong)]
            if frames:
                frame = max(frames, key=lambda one: one.began)
                at = Site(frame.file, frame.returns[-1][1], frame.code.co_name)
                why = f"{frame.code.co_name} is given {len(oracle)} rows of {name} and gives {len(mine)}"
                return First(step_at(sides, at), at, (at,), why)
    return None


def _drops(trail: Trail, frame: Frame, right: Rows, wrong: Rows) -> bool:
    if frame.file.endswith(DOORS) or not frame.returns:
        return False
    gave = _held(trail, frame.returns[-1][2], 2)
    given = sum((_held(trail, one.value, 1) for one in frame.writes if one.line == PARAMETER), Counter[str]())
    return wrong <= gave and right <= given and not right <= gave


def _held(trail: Trail, value: Any, depth: int) -> Rows:
    """How often a value has each row in it."""
    found = Counter([trail.key(value) or ""])
    return sum((_held(trail, one, depth - 1) for one in members(value)), found) if depth else found
