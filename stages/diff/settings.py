"""Where the port tells a library something else than the oracle does: text is made by libraries, and they by settings.

`python -m stages.diff.settings ASKED`: the oracle's side, in a process of its own, as everything of the oracle's.
"""

import json
import operator
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from goldens.store import Golden
from stages import sides as doors
from stages.asked import table_of
from stages.places import ROOT
from stages.spec import Stage
from stages.trace.child import Asked
from stages.trace.demands import number_at
from stages.trace.expressions import given_as
from stages.trace.frames import Frame, reads, watching
from stages.trace.likeness import key, telling
from stages.trace.origin import first_with
from stages.trace.outward import Call, Settings, calling, instead, library, said, state, states
from stages.trace.sites import Site
from stages.trace.slices import idle
from stages.trace.whence import DOORS, Place, Trail, latest, site

from .asked import asked_again
from .blame import outside
from .fields import made_of
from .sides import First

Trace = dict[str, Any]
TRIES = 8  # differences that are tried: each runs the port once more


def told_otherwise(asked: Asked, stage: Stage, ins: Trace, oracle: Trace) -> First | None:
    """The line at which the port tells a library something else; None where it does not, or nobody knows.

    A call counts where the port, once the library is told what the oracle tells it, gives what the oracle gives.

    Args:
        asked: The occurrence.
        stage: Its stage.
        ins: What the stage takes.
        oracle: What the oracle gives.
    """
    with watching("port/") as watch, calling("port/") as logged:
        plain = outs_of(asked, stage, ins)
    trail = Trail(watch)
    objects = {name: value for value in _held(watch.frames) if (name := library(value))}
    calls = [one for one in logged if not (one.code and one.code.co_filename.endswith(DOORS))]
    theirs = _asked_of(asked, {one.name for one in calls}, set(objects))
    if theirs is None:
        return None
    tried: set[tuple[str, str]] = set()
    for call in calls:
        for name, mine, right in _differing(call.told, theirs["calls"].get(call.name, [])):
            if (call.name, name) in tried or len(tried) == TRIES:
                continue
            tried.add((call.name, name))
            with instead(call.called, name, right) as possible:
                mended = outs_of(asked, stage, ins) if possible else {}
            if any(equal(mended, oracle, out) and not equal(plain, oracle, out) for out in mended):
                return _call_at(trail, call, name, mine, right)
    for call in [one for one in calls if not theirs["calls"].get(one.name)][:TRIES]:
        with instead(call.called, "", None) as possible:
            mended = outs_of(asked, stage, ins) if possible else {}
        frame = _caller(trail, call)
        if frame and any(equal(mended, oracle, out) and not equal(plain, oracle, out) for out in mended):
            at = Site(frame.file, call.line, frame.code.co_name)
            why = f"the oracle never calls {call.name.rpartition(':')[2]}, and without it all is well"
            return First(-1, at, (at,), why)
    for name, value in objects.items():
        others = [_common(one, state(value)) for one in theirs["states"].get(name, [])]
        for setting, mine, right in _differing(_common(state(value), others[0]), others) if others else []:
            return _set_at(trail, name, value, setting, mine, right)
    return None


def outs_of(asked: Asked, stage: Stage, ins: Trace) -> Trace:
    """What the port gives, everything made anew; nothing where it raises."""
    cuts = doors.cuts("port", asked.model)
    forget()
    try:
        return doors.call(cuts, cuts.load(Path(asked.checkpoint), asked.compute), stage, asked.occurrence, ins)
    except Exception:  # noqa: BLE001 -- what a library was told until then is what there is
        return {}


def equal(port: Trace, oracle: Trace, name: str) -> bool:
    """Whether both gave an output alike."""
    return name in port and name in oracle and bool(np.array_equal(port[name], oracle[name]))


def _common(told: Settings, other: Settings) -> Settings:
    """What both say something of: settings, and in mappings entries, of one name."""
    both = {name: value for name, value in told.items() if name in other}
    return {
        name: _common(value, other[name]) if isinstance(value, dict) and isinstance(other[name], dict) else value
        for name, value in both.items()
    }


def forget() -> None:
    """Empty the caches of the port's functions: what they made before has to be made again to be seen."""
    for name, module in list(sys.modules.items()):
        if name.startswith("port."):
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()


def _held(frames: list[Frame]) -> Iterator[Any]:
    for frame in frames:
        for write in frame.writes:
            yield write.value
        for _, _, value in frame.returns:
            yield value
            yield from getattr(value, "__dict__", {}).values()


def _differing(told: Settings, others: list[Settings]) -> list[tuple[str, Any, Any]]:
    """(name, the port's, the oracle's) of what differs from the likest of the oracle's."""

    def apart(other: Settings) -> list[str]:
        return [one for one in [*told, *(n for n in other if n not in told)] if told.get(one) != other.get(one)]

    like = min(others, key=lambda other: len(apart(other)), default=None)
    return [] if like is None else [(one, told.get(one), like.get(one)) for one in apart(like)]


def _caller(trail: Trail, call: Call) -> Frame | None:
    return next((one for one in reversed(trail.watch.frames) if one.code is call.code), None)


def _call_at(trail: Trail, call: Call, name: str, mine: Any, theirs: Any) -> First | None:
    frame = _caller(trail, call)
    if frame is None:
        return None
    until = trail.watch.number
    why = f"{call.name.rpartition(':')[2]} is told {name}={mine!r}, by the oracle {theirs!r}"
    at = site((frame, call.line, until))
    part = _part(mine, theirs)
    if part is not None and (first := first_with(trail, lambda one: isinstance(one, str) and one == part)) is not None:
        at = site(first)
    elif given_as(frame.file, call.line, name) is not None:
        at = site(made_of(trail, (frame, call.line, until), name, mine))
    else:
        if isinstance(mine, (list, float)):  # that is hardly another value of the expression
            way = trail.way(frame, call.line, until, key(mine) or "")
            again = asked_again(way, lambda one: said(one) == theirs)
            if again is not None:
                at = again[0]
            elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
                at = site(number_at(trail, way[-1], mine, theirs))
            else:
                at = outside(way) or at
        # By a mapping that is spread out there: where that was made.
        for path, value, write in trail.names(frame, call.line, until):
            if len(path) == 1 and isinstance(value, dict) and set(map(str, value)) <= call.told.keys() and write.line:
                place: Place = (frame, write.line, write.number)
                at = site(_lacks(trail, place, name) if mine is None else place)
    return First(-1, at, (at,), why)


def _part(mine: Any, theirs: Any) -> str | None:
    """Of lists and mappings that differ in one text, that text."""
    while type(mine) is type(theirs) and isinstance(mine, (list, dict)) and len(mine) == len(theirs):
        names = range(len(mine)) if isinstance(mine, list) else [one for one in mine if one in theirs]
        apart = [one for one in names if mine[one] != theirs[one]]
        if len(apart) != 1:
            return None
        mine, theirs = mine[apart[0]], theirs[apart[0]]
        if isinstance(mine, str) and telling(mine):
            return mine
    return None


def _lacks(trail: Trail, at: Place, name: str) -> Place:
    """Of a mapping that lacks an entry, the place where it was made of something that has it, or of nothing."""
    seen: list[Place] = []
    while at not in seen:
        seen.append(at)
        given = [one for one in trail.names(*at) if isinstance(one[1], dict) and one[1]]
        if not given or any(name in value for _, value, _ in given):
            break
        path, _, write = max(given, key=lambda one: len(one[1]))
        at = trail.named(at[0], path, write, at[2]) or at
    return seen[-1]


def _set_at(trail: Trail, kind: str, value: Any, name: str, mine: Any, theirs: Any) -> First | None:
    """The last line that did something to an object by which it is set so; what is called there says what it sets.

    Where there is none, it was made so, or left so.
    """
    found: Site | None = None
    for frame in trail.watch.frames:
        for line, paths in reads(frame.code).items():
            for path in paths:
                owner: Any = None
                if len(path) > 1 and name in path[-1] and (write := latest(frame, path[0], trail.watch.number)):
                    owner = write.value
                    for part in path[1:-1]:
                        owner = getattr(owner, part, None)
                if owner is value:
                    found = Site(frame.file, line, frame.code.co_name)
    if found is None and (made := first_with(trail, partial(operator.is_, value))) is not None:
        frame, line, number = made
        # It should have been told here: a statement behind it that does nothing is where.
        undone = next((at for when, at in frame.lines if when >= number and at in idle(frame.code)), line)
        found = Site(frame.file, undone, frame.code.co_name)
    if isinstance(mine, dict) and isinstance(theirs, dict):
        entry = next(one for one in mine if mine[one] != theirs.get(one))
        name, mine, theirs = f"{name}.{entry}", mine[entry], theirs.get(entry)
    why = f"{kind.rpartition('.')[2]} has {name}={mine!r} from here, the oracle's {theirs!r}"
    return None if found is None else First(-1, found, (found,), why)


def _asked_of(asked: Asked, names: set[str], kinds: set[str]) -> dict[str, Any] | None:
    if not names and not kinds:
        return None
    told = json.dumps({"asked": asdict(asked), "calls": sorted(names), "kinds": sorted(kinds)})
    child = subprocess.run(
        [sys.executable, "-m", "stages.diff.settings"],
        input=told,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode:
        return None
    answer: dict[str, Any] = json.loads(child.stdout)
    return answer


def main() -> None:
    """The oracle's calls of the functions, and its objects of the types, that standard input names."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the oracle prints is no answer
    told = json.load(sys.stdin)
    asked = Asked(**told["asked"])
    cuts, stage = doors.cuts("oracle", asked.model), table_of(asked.model)[asked.stage]
    with Golden.open(Path(asked.golden)) as golden:
        record = golden.read(asked.stage, asked.occurrence)
    with calling(None, frozenset(told["calls"])) as calls:
        model = cuts.load(Path(asked.checkpoint), asked.compute)
        doors.call(cuts, model, stage, asked.occurrence, record.ins)
    by_name: dict[str, list[Settings]] = {}
    for one in calls:
        by_name.setdefault(one.name, []).append(one.told)
    json.dump({"calls": by_name, "states": states(frozenset(told["kinds"]))}, out, default=said)
    out.flush()


if __name__ == "__main__":
    main()
