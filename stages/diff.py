"""One occurrence of a stage, opened: every operation inside on both sides, and the first that introduces an error."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from goldens import canary
from goldens.errors import GoldenError
from goldens.store import Record

from . import sides as doors
from .cases import plan
from .diff_align import align
from .diff_config import misread
from .diff_crop import cropped
from .diff_far import Far, far
from .diff_fields import otherwise
from .diff_first import first
from .diff_near import Near, adopted, nearness
from .diff_settings import equal, outs_of, told_otherwise
from .diff_sides import First, Sides, Step, steps
from .dump import wanted
from .errors import HarnessError, MissingGoldenError, UsageError
from .frames import watching
from .gates import Tensor, judge
from .judge import _yardstick, said
from .mend import mended
from .mend_found import Searched
from .oplog import OpLog, digest, recording
from .oplog_child import Asked, oracle_log
from .shelf import Held, Question, Shelf
from .spec import Stage, Table
from .whence import Trail

Trace = dict[str, Tensor]


@dataclass
class Opened:
    """What was found in one occurrence.

    Attributes:
        outs: How far each output of the port is from the golden's, fed the oracle's inputs; None: not comparable.
        failing: Outputs that fail the gate of the tier in force.
        margins: For each output that has a portable gate with a number: (gate, value, bound), what room there is.
        arrived: How far each input that reached here in the port's ordinary run is from the golden's.
        left: The same for the outputs of that run.
        steps: Every operation.
        first: Where the port first leaves the oracle.
        searched: What came of a search for an edit that mends it; None: there was none.
        notes: What a reader has to know of how this was come by.
        raised: Whether the port raised instead of giving anything.
    """

    stage: str
    occurrence: str
    case: str
    tier: str
    outs: dict[str, Far | None] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)
    margins: dict[str, tuple[str, float, float]] = field(default_factory=dict)
    arrived: dict[str, Far | None] = field(default_factory=dict)
    left: dict[str, Far | None] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    first: First | None = None
    searched: Searched | None = None
    notes: list[str] = field(default_factory=list)
    raised: bool = False

    @property
    def diverges(self) -> bool:
        """Whether an output, fed the oracle's inputs, fails its gate (the exact one: in any bit), or it raises."""
        return bool(self.failing) or self.raised


class _ReachedError(Exception):
    """The ordinary run has come by the occurrence; the rest of it is of no interest."""


@dataclass
class Bench:
    """Where occurrences are opened: one golden, the port loaded on its checkpoint.

    Attributes:
        logs: Folder that keeps what the oracle did, for whoever opens the same occurrence many times.
        seconds: How long to search for an edit of the port that mends what fails; 0 for not at all.
        objected: Whether somebody objects to what is opened: if it is right alone, it is opened after an ordinary run.
    """

    table: Table
    held: Held
    model: Any
    logs: Path | None = None
    seconds: float = 0.0
    objected: bool = False

    def open(self, stage: Stage, occurrence: str, *, free: bool = True) -> Opened:
        """Compare the occurrence operation by operation.

        Raises:
            HarnessError: the port's cut raises.
        """
        held = self.held
        record = held.golden.read(stage.name, occurrence)
        found = Opened(stage.name, occurrence, held.name, held.tier)
        cuts = doors.cuts("port", self.table.model)
        ours, outs = self._watched(found, stage, record)
        plain = {} if found.raised else doors.call(cuts, self.model, stage, occurrence, record.ins)
        self._held_to(found, stage, record, plain)
        alone = found.diverges
        if self.objected and not alone:
            used = self._used(found)
            plain = doors.call(cuts, used, stage, occurrence, record.ins)
            self._held_to(found, stage, record, plain)
            if found.diverges:
                found.notes.append("alone it is right, after the port's ordinary run it is not: something is kept")
                ours, outs = self._watched(found, stage, record, used)
        if not found.raised and any(
            plain[name].tobytes() != outs[name].tobytes() for name in plain.keys() & outs.keys()
        ):
            found.notes.append("watched, the port gives other bits than plain: its compiled functions round otherwise")
        self._beside(found, ours, record, outs)
        # An edit is tried on a port that is loaded anew, which is right alone where something is kept.
        if self.seconds and found.failing and alone:
            found.searched = mended(self.table, held, stage.name, occurrence, found.first, ours.watch, self.seconds)
            found.first = found.searched.believed(found.first)
        if free:
            self._free(found, stage, record)
        return found

    def _watched(self, found: Opened, stage: Stage, record: Record, used: Any = None) -> tuple[OpLog, Trace]:
        """The port's operations and outputs; of a model that is loaded anew, unless one is given."""
        cuts = doors.cuts("port", self.table.model)
        outs: Trace = {}
        with watching("port/") as watch, recording(watch) as ours:
            try:
                # Loaded anew: what it makes of the checkpoint is part of what may be wrong.
                model = used or cuts.load(self.held.checkpoint, self.held.compute)
                ours.start = len(ours.ops)
                outs = doors.call(cuts, model, stage, found.occurrence, record.ins)
            except Exception as error:  # noqa: BLE001 -- whatever the port raises is said of the port
                found.notes.append(f"the port raises {said(error)}")
                found.raised = True
                ours.start = ours.start or len(ours.ops)
        return ours, outs

    def _used(self, found: Opened) -> Any:
        """A model that has made the port's ordinary run, as the judge's has before it is fed anything."""
        model = doors.cuts("port", self.table.model).load(self.held.checkpoint, self.held.compute)
        config = json.loads((self.held.checkpoint / "config.json").read_text())
        try:
            doors.taps("port", self.table.model).run(model, plan(self.held.case, config), lambda *_: None)
        except Exception as error:  # noqa: BLE001 -- whatever the port raises is said of the port
            found.notes.append(f"the port's ordinary run raises {said(error)}")
        return model

    def _held_to(self, found: Opened, stage: Stage, record: Record, plain: Trace) -> None:
        """Say how far the port's outputs are from the golden's, and which of them fail."""
        found.outs = _distances(record.outs, plain)
        found.failing = [
            name
            for name in sorted(record.outs.keys() | plain.keys())
            if not _passes(stage, name, self.held.tier, record, plain)
        ]
        found.margins = dict(_margins(stage, record, plain))

    def _beside(self, found: Opened, ours: OpLog, record: Record, outs: Trace) -> None:
        asked = Asked(
            self.table.model,
            str(self.held.checkpoint.absolute()),
            self.held.compute,
            str(self.held.golden.path),
            found.stage,
            found.occurrence,
        )
        try:
            theirs, given = oracle_log(asked, self.logs)
        except HarnessError as error:
            found.notes.append(f"{error}. Only the outputs are compared, and the port's own operations shown")
            found.steps = [Step(op, None) for op in ours.ops]
            return
        if any(given[name].tobytes() != tensor.tobytes() for name, tensor in record.outs.items() if name in given):
            found.notes.append(
                "the oracle, run here, gives other bits than the golden holds: it was recorded elsewhere"
            )
        pairs = [(given[name], outs[name]) for name in found.failing if name in given and name in outs]
        near = None if self.table.exact else Near(theirs, nearness(pairs))
        ours = adopted(ours, near) if near else ours
        theirs = cropped(ours, theirs)
        both = Sides(ours, theirs, align(ours.ops, theirs.ops, ours.start), near.digest if near else digest, bool(near))
        found.steps = steps(both)
        wrong = {
            name: (given[name], outs[name])
            for name in sorted(given.keys() & outs.keys())
            if (name in found.failing if near else given[name].tobytes() != outs[name].tobytes())
        }
        if wrong or found.raised:
            stage = self.table[found.stage]
            # Where nothing was computed a library may have been told something else.
            told = told_otherwise(asked, stage, record.ins, given) if len(ours.ops) == ours.start else None
            found.first = told or otherwise(both, stage, given, outs)
            found.first = (
                found.first
                or self._misread(asked, record, ours, wrong, near)
                or first(both, wrong, raised=found.raised)
            )

    def _misread(
        self, asked: Asked, record: Record, ours: OpLog, wrong: dict[str, tuple[Tensor, Tensor]], near: Near | None
    ) -> First | None:
        """The field of the configuration that is to blame, if one is."""
        stage, config = self.table[asked.stage], json.loads((self.held.checkpoint / "config.json").read_text())

        def mends() -> bool:
            again = outs_of(asked, stage, record.ins)
            return bool(wrong) and all(
                name in again and (near.alike(again[name], oracle) if near else equal(again, {name: oracle}, name))
                for name, (oracle, _) in wrong.items()
            )

        return None if ours.watch is None else misread(Trail(ours.watch), config, mends)

    def _free(self, found: Opened, stage: Stage, record: Record) -> None:
        config = json.loads((self.held.checkpoint / "config.json").read_text())
        crossed: list[tuple[Trace, Trace]] = []

        def emit(name: str, occurrence: str, ins: Mapping[str, Any], outs: Mapping[str, Any]) -> None:
            if (name, occurrence) == (stage.name, found.occurrence):
                crossed.append((dict(ins), dict(outs)))
                raise _ReachedError

        try:
            doors.taps("port", self.table.model).run(self.model, plan(self.held.case, config), emit)
        except _ReachedError:
            found.arrived, found.left = (
                _distances(a, b) for a, b in zip((record.ins, record.outs), crossed[0], strict=True)
            )
        except Exception as error:  # noqa: BLE001 -- whatever the port raises is said of the port
            found.notes.append(f"the port's ordinary run stopped before this: {said(error)}")
        else:
            found.notes.append("the port's ordinary run never comes by here")


def _distances(golden: Mapping[str, Any], port: Mapping[str, Any]) -> dict[str, Far | None]:
    names = sorted(golden.keys() | port.keys())
    return {
        name: far(np.asarray(golden[name]), np.asarray(port[name])) if name in golden and name in port else None
        for name in names
    }


def _passes(stage: Stage, name: str, tier: str, record: Record, port: Trace) -> bool:
    out = stage.out(name)
    if out is None or name not in record.outs or name not in port:
        return False
    return judge(out.gate(tier), record.outs[name], port[name], _yardstick(record, name, "forced"))[0]


def _margins(stage: Stage, record: Record, port: Trace) -> Iterator[tuple[str, tuple[str, float, float]]]:
    for name, oracle in record.outs.items():
        out = stage.out(name)
        if out is None or name not in port:
            continue
        measured = judge(out.portable, oracle, port[name], _yardstick(record, name, "forced"))[1]
        if measured.value is not None:
            yield name, (out.portable.name, measured.value, out.portable.bound)


def chosen(table: Table, question: Question, stage: str, words: tuple[str, ...], load: Any) -> tuple[Held, str]:
    """The golden and the occurrence that the words of a command mean: the first that has all of them.

    `5` means `layer=5` of a stage that has layers; else a word is a segment, or several: `canvas=0/step=31`.

    Raises:
        UsageError: no golden at hand holds such an occurrence.
    """
    if stage not in (names := [one.name for one in table.stages]):
        raise UsageError(f"no stage of {table.model} is called {stage!r}; there are: {', '.join(names)}")
    shelf = Shelf(table, question, canary.canary(), load)
    seen: list[str] = []
    stale: list[str] = []
    for case, compute in wanted(table, question.cases, question.computes):
        try:
            held = shelf.take(case, compute)
        except (GoldenError, MissingGoldenError) as error:
            stale.append(str(error))
            continue
        for occurrence in held.golden.occurrences(stage):
            if has(occurrence, words):
                return held, occurrence
            seen.append(f"{occurrence} ({held.name})")
    asked = f"{stage}[{' '.join(words)}]"
    if seen:
        raise UsageError(f"no golden at hand holds {asked}; of {stage} there are: {', '.join(seen[:12])}")
    raise UsageError(f"no golden at hand holds {asked}" + (f": {stale[0]}" if stale else ""))


def has(occurrence: str, words: tuple[str, ...]) -> bool:
    """Whether an occurrence is one that the words mean."""
    segments = occurrence.split("/")
    return all((f"layer={part}" if part.isdigit() else part) in segments for word in words for part in word.split("/"))
