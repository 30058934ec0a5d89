"""One occurrence of a stage, opened: every operation inside on both sides, and the first that introduces an error."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from goldens.store import Record
from stages import sides as doors
from stages.errors import HarnessError
from stages.gates import Tensor, judge
from stages.judge import _yardstick, said
from stages.mend.child import passes
from stages.mend.found import Searched
from stages.mend.search import mended
from stages.shelf import Held
from stages.spec import Stage, Table
from stages.trace.child import Asked, oracle_log
from stages.trace.frames import Watch, watching
from stages.trace.oplog import OpLog, digest, recording
from stages.trace.whence import Trail

from .align import align
from .config import misread
from .crop import cropped
from .far import Far, far
from .fields import otherwise
from .first import first
from .kept import kept
from .near import Near, adopted, nearness
from .ordinary import Ordinary, untold
from .settings import equal, outs_of, told_otherwise
from .sides import First, Sides, Step, steps

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
        watch: What the port did in Python meanwhile.
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
    watch: Watch | None = field(default=None, repr=False)

    @property
    def diverges(self) -> bool:
        """Whether an output, fed the oracle's inputs, fails its gate (the exact one: in any bit), or it raises."""
        return bool(self.failing) or self.raised


@dataclass
class Bench:
    """Where occurrences are opened: one golden, the port loaded on its checkpoint.

    Attributes:
        logs: Folder that keeps what the oracle did, for whoever opens the same occurrence many times.
        seconds: How long to search for an edit of the port that mends what fails; 0 for not at all.
    """

    table: Table
    held: Held
    model: Any
    logs: Path | None = None
    seconds: float = 0.0

    def open(self, stage: Stage, occurrence: str, *, free: bool | None = True) -> Opened:
        """Compare the occurrence operation by operation.

        Args:
            stage: The stage.
            occurrence: One that the golden holds.
            free: Whether the port's ordinary run is looked at too: how it comes by there, and, where the stage alone
                passes, what fails there; None: only where the stage alone passes.

        Raises:
            HarnessError: the port's cut raises.
        """
        record = self.held.golden.read(stage.name, occurrence)
        found = self._opened(stage, occurrence, record)
        if found.first is None or not found.first.sure:
            self._untold(found, stage)
        if self.seconds and found.failing:
            self._mend(found, "forced")
        if free or (free is None and not found.diverges):
            found = self._free(found, stage, record)
        return found

    def _opened(self, stage: Stage, occurrence: str, record: Record, used: Any = None) -> Opened:
        """The stage alone, on a model that is loaded for it or that was used before."""
        held = self.held
        found = Opened(stage.name, occurrence, held.name, held.tier)
        cuts = doors.cuts("port", self.table.model)
        plain: Trace = {}
        outs: Trace = {}
        with watching("port/") as watch, recording(watch) as ours:
            try:
                # Loaded anew: what it makes of the checkpoint is part of what may be wrong.
                model = used or cuts.load(held.checkpoint, held.compute)
                ours.start = len(ours.ops)
                outs = doors.call(cuts, model, stage, occurrence, record.ins)
            except Exception as error:  # noqa: BLE001 -- whatever the port raises is said of the port
                found.notes.append(f"the port raises {said(error)}")
                found.raised = True
                ours.start = ours.start or len(ours.ops)
        found.watch = ours.watch
        if not found.raised:
            plain = outs if used else doors.call(cuts, self.model, stage, occurrence, record.ins)
        found.outs = _distances(record.outs, plain)
        found.failing = self._failing(stage, record, plain)
        found.margins = dict(_margins(stage, record, plain))
        if not found.raised and any(
            plain[name].tobytes() != outs[name].tobytes() for name in plain.keys() & outs.keys()
        ):
            found.notes.append("watched, the port gives other bits than plain: its compiled functions round otherwise")
        self._beside(found, ours, record, outs)
        return found

    def _failing(self, stage: Stage, record: Record, outs: Mapping[str, Any]) -> list[str]:
        names = sorted(record.outs.keys() | outs.keys())
        return [name for name in names if not passes(stage, name, self.held.tier, record, outs)]

    def _mend(self, found: Opened, mode: str) -> None:
        asked = (self.table, self.held, found.stage, found.occurrence, found.first, found.watch, self.seconds)
        found.searched = mended(*asked, mode=mode)
        found.first = found.searched.believed(found.first)

    def _untold(self, found: Opened, stage: Stage) -> None:
        """Where steps that were told hide what a loop does by itself, open the same without their being told."""
        twin = untold(found.occurrence)
        if not found.failing or twin not in self.held.golden.occurrences(stage.name):
            return
        other = self._opened(stage, twin, self.held.golden.read(stage.name, twin))
        if other.failing and other.first is not None and other.first.sure:
            found.notes.append(
                f"each step is told here; where none is, in {twin}, the port leaves the oracle by itself"
            )
            found.first = replace(other.first, step=-1, why=f"in {twin}: {other.first.why}")

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

    def _free(self, found: Opened, stage: Stage, record: Record) -> Opened:
        """How the port's ordinary run comes by; where the stage alone passes and that does not, what fails in it."""
        run = Ordinary(self.table, self.held, stage.name, found.occurrence)
        try:
            crossed = run.crossed(self.model)
        except Exception as error:  # noqa: BLE001 -- whatever the port raises is said of the port
            found.notes.append(f"the port's ordinary run stopped before this: {said(error)}")
            return found
        if crossed is None:
            found.notes.append("the port's ordinary run never comes by here")
            return found
        found.arrived, found.left = (_distances(a, b) for a, b in zip((record.ins, record.outs), crossed, strict=True))
        if found.diverges:
            return found
        used = self._opened(stage, found.occurrence, record, run.used())
        if used.diverges:
            used.notes.insert(
                0, "alone it passes, and no more once the ordinary run has been: the model keeps something"
            )
            if found.watch is not None and used.watch is not None:
                used.first = kept(used.watch, found.watch, run.alone(record)) or used.first
            return replace(used, arrived=found.arrived, left=found.left)
        inherited = self.held.tier == "exact" and any(one is None or not one.equal for one in found.arrived.values())
        if not inherited and (failing := self._failing(stage, record, crossed[1])):
            found.notes.append("alone it passes: what is wrong is how the port's ordinary run asks for it")
            found.failing = failing
            found.first, found.watch = run.asked_otherwise(record)
            if self.seconds:
                self._mend(found, "free")
        return found


def _distances(golden: Mapping[str, Any], port: Mapping[str, Any]) -> dict[str, Far | None]:
    names = sorted(golden.keys() | port.keys())
    return {
        name: far(np.asarray(golden[name]), np.asarray(port[name])) if name in golden and name in port else None
        for name in names
    }


def _margins(stage: Stage, record: Record, port: Trace) -> Iterator[tuple[str, tuple[str, float, float]]]:
    for name, oracle in record.outs.items():
        out = stage.out(name)
        if out is None or name not in port:
            continue
        measured = judge(out.portable, oracle, port[name], _yardstick(record, name, "forced"))[1]
        if measured.value is not None:
            yield name, (out.portable.name, measured.value, out.portable.bound)
