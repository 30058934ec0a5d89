"""Hold the port to one golden: each stage forced (fed the oracle's inputs) and free (as reached in an ordinary run)."""

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from goldens.errors import GoldenError
from goldens.store import Golden, Record
from reports.verdict import Status, Verdict, Worst

from . import followed, sides
from .code import Executed
from .gates import FLOATS, Tensor, Unasked, Yardstick, bits, judge, ulps, wide
from .spec import Out, Stage, Table
from .spread import spread

SHOWN = 8  # differing elements kept with a failure; one with a pass
Trace = dict[str, Any]


@dataclass(frozen=True)
class Border:
    """One comparison's place: a stage, one of its occurrences, and how its inputs were come by."""

    stage: Stage
    occurrence: str
    mode: str


@dataclass
class Judge:
    """The port's side of one golden, in one tier.

    Attributes:
        model: The loaded port.
        plan: What the golden's run executed.
        executed: Per stage, the port's files that its forced cuts ran.
        partings: Where the ordinary run left the oracle at a tie, by the run's prefix; in the portable tier alone.
    """

    table: Table
    golden: Golden
    case: str
    tier: str
    model: Any
    plan: dict[str, Any]
    executed: dict[str, set[Any]] = field(default_factory=dict)
    partings: dict[str, followed.Parting] = field(default_factory=dict)
    _free: dict[str, list[Verdict]] | None = None

    def forced(self, stage: Stage) -> list[Verdict]:
        """Verdicts of every recorded occurrence, each fed the oracle's inputs."""
        cuts = sides.cuts("port", self.table.model)
        self.free(stage)  # first, so that what is watched below no longer loads weights
        verdicts: list[Verdict] = []
        watch = Executed()
        for occurrence in self.golden.occurrences(stage.name):
            here = Border(stage, occurrence, "forced")
            record = self.golden.read(stage.name, occurrence)
            try:
                with watch.watching():
                    outs = sides.call(cuts, self.model, stage, occurrence, record.ins)
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever the port raises is a verdict on the port
                verdicts.append(self._broken(here, error))
                continue
            verdicts.extend(self.hold(here, record, outs))
        self.executed[stage.name] = watch.files(constructors=True)
        return verdicts

    def free(self, stage: Stage) -> list[Verdict]:
        """Verdicts of the stage's borders in the port's ordinary run (made once for all stages)."""
        if self._free is None:
            self._free = _FreeRun(self).run()
        return self._free[stage.name]

    def _broken(self, here: Border, error: BaseException) -> Verdict:
        return self.verdict(here, "", Status.ERROR, note=said(error))

    def verdict(self, here: Border, tensor: str, status: Status, **rest: Any) -> Verdict:
        """A verdict of this golden in this tier."""
        blank: dict[str, Any] = {"gate": "", "value": None, "bound": None, "where": "", "note": "", "tier": self.tier}
        return Verdict(
            model=self.table.model,
            stage=here.stage.name,
            occurrence=here.occurrence,
            mode=here.mode,
            case=self.case,
            tensor=tensor,
            status=status,
            **{**blank, **rest},
        )

    def hold(self, here: Border, record: Record, outs: Trace) -> Iterator[Verdict]:
        """One verdict a tensor; a missing one and one that the golden does not know are failures."""
        settled = self._settled(here, record, outs) if self.tier != "exact" else followed.Settled(record, outs)
        record, outs = settled.record, settled.outs
        for name in sorted(record.outs.keys() | outs.keys()):
            out = here.stage.out(name)
            if out is None or name not in record.outs:
                note = "the port gives this tensor, the golden does not hold it"
                yield self.verdict(here, name, Status.FAIL, note=note)
            elif name not in outs:
                gate = out.gate(self.tier, here.mode).name
                yield self.verdict(here, name, Status.FAIL, gate=gate, note="the port gives no such tensor")
            elif not isinstance(out.gate(self.tier, here.mode), Unasked):
                yield self._measure(here, name, settled)

    def _settled(self, here: Border, record: Record, outs: Trace) -> followed.Settled:
        """What is left to compare of a trajectory that ties may have parted."""
        prefix, _, last = here.occurrence.rpartition("/")
        run, _, canvas = prefix.rpartition("canvas=")
        if here.stage.name in followed.WHOLE:
            return followed.whole(record, outs, self.partings.get(here.occurrence.removesuffix("whole")))
        if here.stage.name != followed.CANVAS:
            return followed.Settled(record, outs)
        if here.mode == "forced" and last == "forced":
            return followed.forced(record, outs)
        told = [self.golden.read(followed.CANVAS, f"{run}canvas={i}/forced") for i in range(int(canvas) + 1)]
        made = [followed.made(one) for one in told[:-1]]
        before = sum(draws for draws, _ in made), sum(tokens for _, tokens in made)
        settled = followed.free(record, told[-1], outs, int(canvas), before)
        if here.mode == "free" and settled.parting is not None:
            self.partings.setdefault(run, settled.parting)
        return settled

    def _measure(self, here: Border, name: str, settled: followed.Settled) -> Verdict:
        record, port = settled.record, settled.outs[name]
        out, oracle = here.stage.out(name), record.outs[name]
        assert out is not None
        gate = out.gate(self.tier, here.mode)
        # A canvas' own steps are its yardstick however it was reached: until it parts, it sees the recorded tokens.
        mode = "forced" if here.stage.name == followed.CANVAS and self.tier != "exact" else here.mode
        passed, measured = judge(gate, oracle, port, _yardstick(record, name, mode))
        where, note = "", "; ".join(part for part in (settled.note, measured.note) if part)
        if measured.index is not None and not passed:
            where = _address(out, measured.index, record.outs)
            values = f"oracle {_show(oracle, measured.index)}, port {_show(port, measured.index)}"
            note = f"{values}; {note}" if note else values
        comparable = oracle.shape == port.shape and oracle.dtype == port.dtype
        return self.verdict(
            here,
            name,
            Status.PASS if passed else Status.FAIL,
            gate=gate.name,
            value=measured.value,
            bound=gate.bound,
            where=where,
            note=note,
            because=gate.because,
            worst=tuple(_worst(oracle, port, 1 if passed else SHOWN)) if comparable else (),
            spread=spread(oracle, port, passed=passed) if comparable else None,
        )


class _FreeRun:
    """The port's ordinary run beside the golden, border by border, in order of execution.

    A border whose inputs already differ is not judged where its outputs differ too: the error was inherited, and the
    verdict waits for the stage that brought it in. In the portable tier inputs always differ; there the gate decides.
    """

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.first = ""
        self.verdicts: dict[str, list[Verdict]] = {stage.name: [] for stage in judge.table.stages}
        golden = judge.golden
        self.crossed: set[tuple[str, str]] = set()
        self.waiting = dict.fromkeys((stage, where) for stage in golden.stages() for where in golden.occurrences(stage))

    def run(self) -> dict[str, list[Verdict]]:
        judge = self.judge
        status, unreached = Status.FAIL, "the port's ordinary run never comes by here"
        try:
            sides.taps("port", judge.table.model).run(judge.model, judge.plan, self._crossed)
        except GoldenError:
            raise  # met while reading what a border should give: no fault of the port
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever the port raises is a verdict on the port
            # No fault of the stages that it did not reach: the one that raises says so when it is forced.
            status, unreached = Status.LOCKED, f"the port's ordinary run stopped before this: {said(error)}"
        # A run that has left the oracle may take other ways from there on: not coming by is then inherited too.
        if self.first:
            status = Status.LOCKED
            unreached += f"; it waits for {self.first}, where the run first left the oracle"
        for stage, occurrence in self.waiting:
            here = Border(judge.table[stage], occurrence, "free")
            self.verdicts[stage].append(judge.verdict(here, "", status, note=unreached))
        return {stage: [row for row in rows if not self._parted(row)] for stage, rows in self.verdicts.items()}

    def _parted(self, row: Verdict) -> bool:
        """Whether a border follows from a tie, which the canvas of that tie says: there is nothing to compare it to."""
        parting = self.judge.partings.get(row.occurrence.partition("canvas=")[0])
        return parting is not None and parting.parted(sides.parse(row.occurrence))

    def _crossed(self, stage: str, occurrence: str, ins: Trace, outs: Trace) -> None:
        judge = self.judge
        if (stage, occurrence) not in self.waiting:
            if (stage, occurrence) in self.crossed:
                note = "the port's ordinary run comes by here twice, the oracle's once"
                here = Border(judge.table[stage], occurrence, "free")
                self.verdicts[stage].append(judge.verdict(here, "", Status.FAIL, note=note))
            return  # else a layer that this golden does not keep
        del self.waiting[stage, occurrence]
        self.crossed.add((stage, occurrence))
        record = judge.golden.read(stage, occurrence)
        rows = list(judge.hold(Border(judge.table[stage], occurrence, "free"), record, outs))
        inherited = judge.tier == "exact" and not _same(record.ins, ins)
        if inherited:
            self.first = self.first or f"what comes before {stage}[{occurrence}] and is not kept in this golden"
            rows = [self._inherit(row) for row in rows]
        elif any(row.status is not Status.PASS for row in rows):
            self.first = self.first or f"{stage}[{occurrence}]"
        self.verdicts[stage].extend(rows)

    def _inherit(self, row: Verdict) -> Verdict:
        if row.status is Status.PASS:
            return row
        note = f"its inputs already differ: waits for {self.first}, where the run first left the oracle"
        return replace(row, status=Status.LOCKED, note=note, worst=(), spread=None)


def said(error: BaseException) -> str:
    """An exception in one line, with the place that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.filename.rpartition('/')[2]}:{last.lineno})"


def _same(golden: Trace, port: Trace) -> bool:
    return golden.keys() == port.keys() and all(
        port[name].dtype == tensor.dtype
        and port[name].shape == tensor.shape
        and np.array_equal(bits(port[name]), bits(tensor))
        for name, tensor in golden.items()
    )


def _yardstick(record: Record, name: str, mode: str) -> Yardstick:
    noises = {other: noise["forced"] for other, noise in (record.noise or {}).items()}
    noise = (record.noise or {}).get(name)
    if noise is None:
        return Yardstick(ins=record.ins, outs=record.outs, noises=noises)
    delta = record.wide.get(name) if record.wide and mode == "forced" else None
    return Yardstick(None if delta is None else wide(delta), noise[mode], record.ins, record.outs, noises)


def _address(out: Out, index: tuple[int, ...], outs: Trace) -> str:
    names = out.axes.split()
    parts = [f"{name}={i}" for name, i in zip(names, index, strict=False)]
    if out.label and index:
        parts.append(outs[out.label][index[0]].tobytes().rstrip(b"\0").decode())
    return ", ".join(parts)


def _show(tensor: Tensor, index: tuple[int, ...]) -> str:
    value = tensor[index]
    if value.ndim:
        return str(value.tolist()) if value.size <= SHOWN else f"[{', '.join(map(str, value[:SHOWN].tolist()))}, ...]"
    return f"{float(value):.9g}" if tensor.dtype in FLOATS else str(value)


def _worst(oracle: Tensor, port: Tensor, shown: int) -> Iterator[Worst]:
    """Elements that differ, furthest apart first."""
    if oracle.tobytes() == port.tobytes():
        return
    a, b = bits(oracle), bits(port)
    with np.errstate(invalid="ignore"):
        distance = np.where(a != b, np.nan_to_num(np.abs(wide(oracle) - wide(port)), nan=np.inf), -1.0).ravel()
    for flat in np.argsort(-distance, kind="stable")[:shown]:
        index = tuple(int(i) for i in np.unravel_index(int(flat), oracle.shape))
        if a[index] == b[index]:
            return
        digits = 2 * oracle.dtype.itemsize
        finite = np.isfinite(wide(oracle[index])) and np.isfinite(wide(port[index]))
        yield Worst(
            index,
            _show(oracle, index),
            _show(port, index),
            f"0x{int(a[index]):0{digits}x}",
            f"0x{int(b[index]):0{digits}x}",
            ulps(oracle[index], port[index]) if oracle.dtype in FLOATS and finite else float("nan"),
        )
