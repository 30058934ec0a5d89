"""Where a stage alone passes and the port's ordinary run does not: what the run leaves in the model, or asks for."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from goldens.store import Record
from stages import sides as doors
from stages.cases import plan
from stages.shelf import Held
from stages.spec import Table
from stages.trace.frames import PARAMETER, Frame, Watch, watching
from stages.trace.likeness import key, members
from stages.trace.sites import Site
from stages.trace.whence import DOORS, Trail

from .sides import First

Crossed = tuple[dict[str, Any], dict[str, Any]]
TOLD, UNTOLD = "forced", "free"  # last segments of an occurrence whose steps begin as recorded, and of its twin


class _ReachedError(Exception):
    """The ordinary run has come by the occurrence; the rest of it is of no interest."""


def untold(occurrence: str) -> str:
    """The same without its steps' being told; nothing where it tells none."""
    before, slash, last = occurrence.rpartition("/")
    return f"{before}{slash}{UNTOLD}" if last == TOLD else ""


@dataclass(frozen=True)
class Ordinary:
    """The port's ordinary run of a case, as it comes by one border."""

    table: Table
    held: Held
    stage: str
    occurrence: str

    def crossed(self, model: Any) -> Crossed | None:
        """(what arrives, what leaves), with the run ended there; None where it never comes by.

        Raises:
            Exception: whatever the port raises.
        """
        found: list[Crossed] = []

        def emit(name: str, occurrence: str, ins: Mapping[str, Any], outs: Mapping[str, Any]) -> None:
            if (name, occurrence) == (self.stage, self.occurrence):
                found.append((dict(ins), dict(outs)))
                raise _ReachedError

        with suppress(_ReachedError):
            doors.taps("port", self.table.model).run(model, self._plan(), emit)
        return found[0] if found else None

    def used(self) -> Any:
        """A model that has made the whole run."""
        model = self._loaded()
        with suppress(Exception):  # how far it comes is said elsewhere
            doors.taps("port", self.table.model).run(model, self._plan(), lambda *_: None)
        return model

    def alone(self, record: Record) -> Watch:
        """What the stage alone does in Python, on a model loaded for it."""
        with watching("port/") as watch:
            cuts = doors.cuts("port", self.table.model)
            doors.call(cuts, self._loaded(), self.table[self.stage], self.occurrence, record.ins)
        return watch

    def asked_otherwise(self, record: Record) -> tuple[First | None, Watch]:
        """The last line before the border that handed on something wrong with the right thing at hand."""
        with watching("port/") as watch:
            crossed = self.crossed(self._loaded())
        pairs = list(_differing(record, crossed)) if crossed else []
        return next((found for pair in pairs if (found := _handed(Trail(watch), *pair)) is not None), None), watch

    def _plan(self) -> dict[str, Any]:
        return plan(self.held.case, json.loads((self.held.checkpoint / "config.json").read_text()))

    def _loaded(self) -> Any:
        return doors.cuts("port", self.table.model).load(self.held.checkpoint, self.held.compute)


def _differing(record: Record, crossed: Crossed) -> Iterator[tuple[str, str, str]]:
    """(name, key of the golden's, key of the port's) of what differs at a border, and of its rows."""
    for golden, port in zip((record.ins, record.outs), crossed, strict=True):
        for name in sorted(golden.keys() & port.keys()):
            right, wrong = golden[name], np.asarray(port[name])
            if right.tobytes() == wrong.tobytes() or right.dtype != wrong.dtype:
                continue
            yield name, key(right) or "", key(wrong) or ""
            if right.ndim and right.shape == wrong.shape:
                for a, b in zip(right, wrong, strict=True):
                    if a.tobytes() != b.tobytes():
                        yield name, key(a) or "", key(b) or ""


def _handed(trail: Trail, name: str, right: str, wrong: str) -> First | None:
    for frame in reversed(trail.watch.frames):
        above = frame.parent
        if above is None or frame.file.endswith(DOORS) or above.file.endswith(DOORS):
            continue
        got = any(one.line == PARAMETER and trail.key(one.value) == wrong for one in frame.writes)
        if got and any(trail.key(one) == right for one in _at_hand(above, frame.began)):
            at = Site(above.file, frame.asked, above.code.co_name)
            return First(
                -1, at, (at,), f"{frame.code.co_name} is given something else than {name}, which is at hand here"
            )
    return None


def _at_hand(frame: Frame, until: int) -> Iterator[Any]:
    for one in frame.writes:
        if one.number <= until:
            yield one.value
            yield from members(one.value)
