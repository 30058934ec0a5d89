"""What a table or a page is made from: stages, verdicts, provenance; and the tallies all renderers share."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reports.history import Past
from reports.more import Mutant, NearTie, Trajectory
from reports.verdict import SEVERITY, Status, Verdict, kind, number, summarize


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate of one output in one tier: its name, the largest value that passes, and why it is not exact."""

    tier: str
    name: str
    bound: float | None
    because: str = ""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor a stage takes or gives: its axes as a row of the table spells them (`B T D`), and its gates."""

    name: str
    axes: str
    gates: tuple[Gate, ...] = ()


@dataclass(frozen=True, slots=True)
class StageInfo:
    """One row of a table as it stands now.

    Attributes:
        model: the table's model.
        name: the stage's name.
        after: the stages that unlock this one.
        state: how the stage as a whole stands; None where it was not judged.
        waits_for: of `after`, those that hold no current PASS.
        takes: what the stage is fed.
        gives: what it gives, with a gate per tier.
        command: the shell command that judges this stage again.
        seconds: wall time of the judgement the verdicts come from; shown in text only, as pages hold no clock.
        fresh: False where the verdicts come from the ledger.
    """

    model: str
    name: str
    after: tuple[str, ...]
    state: Status | None
    waits_for: tuple[str, ...] = ()
    takes: tuple[Tensor, ...] = ()
    gives: tuple[Tensor, ...] = ()
    command: str = ""
    seconds: float = 0.0
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the renderers need.

    Attributes:
        stages: in the table's order; several models may follow one another.
        verdicts: in the order they were found.
        tier: the tier in force where a verdict does not say otherwise.
        manifests: provenance of each golden that was judged, by case.
        environment: this machine and its packages.
        canary: hash per primitive operation, as computed here.
        differing: by case, the primitives whose hash is another one here than where the golden was recorded.
        history: what earlier runs found, oldest first.
        mutants: planted bugs and what caught them.
        margins: decisions that the oracle nearly took otherwise, closest first.
        trajectories: canvases being un-masked, on both sides.
    """

    stages: tuple[StageInfo, ...]
    verdicts: tuple[Verdict, ...] = ()
    tier: str = "exact"
    manifests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    canary: Mapping[str, str] = field(default_factory=dict)
    differing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    history: Sequence[Past] = ()
    mutants: Sequence[Mutant] = ()
    margins: Sequence[NearTie] = ()
    trajectories: Sequence[Trajectory] = ()


def excess(verdict: Verdict) -> float:
    """How far a value is from its bound: at most 1 within it; infinite where there is no finite value."""
    value, bound = verdict.value, verdict.bound
    if value is None:
        return 0.0 if verdict.status is Status.PASS else math.inf
    if not math.isfinite(value):
        return math.inf
    if not bound:
        return value + 1.0 if value else 0.0
    return value / bound


@dataclass(slots=True)
class Tally:
    """What many verdicts come to.

    Attributes:
        verdicts: all of them, in order.
        counts: how many ended in each status.
        cases: their cases, in order of first appearance.
        occurrences: their occurrences, in order of first appearance.
        tiers: the tiers they were judged in, sorted.
        worst: the verdict furthest from its bound, by mode.
    """

    verdicts: list[Verdict] = field(default_factory=list)
    counts: dict[Status, int] = field(default_factory=dict)
    cases: tuple[str, ...] = ()
    occurrences: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    worst: dict[str, Verdict] = field(default_factory=dict)

    @property
    def status(self) -> Status | None:
        """The worst status, or None where there are no verdicts."""
        return next((status for status in SEVERITY if self.counts.get(status)), None)

    @property
    def worst_of_all(self) -> Verdict | None:
        """The verdict furthest from its bound in any mode."""
        return max(self.worst.values(), key=_badness, default=None)

    def failing(self) -> list[Verdict]:
        """The verdicts a person must look at, worst status first, forced before free, else in order.

        LOCKED ones are left out: they were not judged, and what they wait for is said once for the stage.
        """
        found = [v for v in self.verdicts if v.status not in {Status.PASS, Status.LOCKED}]
        return sorted(found, key=lambda v: (SEVERITY.index(v.status), v.mode != "forced"))


def _badness(verdict: Verdict) -> tuple[int, float]:
    return -SEVERITY.index(verdict.status), excess(verdict)


def tally(verdicts: Iterable[Verdict]) -> Tally:
    """The tally of `verdicts`."""
    found = list(verdicts)
    by_mode: dict[str, list[Verdict]] = {}
    for verdict in found:
        by_mode.setdefault(verdict.mode, []).append(verdict)
    return Tally(
        verdicts=found,
        counts=summarize(found),
        cases=tuple(dict.fromkeys(v.case for v in found)),
        occurrences=tuple(dict.fromkeys(v.occurrence for v in found)),
        tiers=tuple(sorted({v.tier for v in found})),
        worst={mode: max(group, key=_badness) for mode, group in sorted(by_mode.items())},
    )


def by_stage(report: Report) -> list[tuple[StageInfo, Tally]]:
    """Every stage of the report with the tally of its verdicts, in the table's order."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in report.verdicts:
        groups.setdefault((verdict.model, verdict.stage), []).append(verdict)
    return [(stage, tally(groups.get((stage.model, stage.name), ()))) for stage in report.stages]


def state_of(stage: StageInfo) -> str:
    """The stage's state as a word."""
    return str(stage.state) if stage.state else "not judged"


def tier_of(report: Report, found: Tally) -> str:
    """The tier or tiers a stage's verdicts were judged in; the report's where it has none."""
    return ", ".join(found.tiers) or report.tier


def gate_of(verdict: Verdict | None) -> str:
    """A gate and its bound in short: `exact 0`, `within 2`."""
    return "-" if verdict is None or not verdict.gate else f"{kind(verdict.gate)} {number(verdict.bound)}"


def case_command(stage: StageInfo, case: str) -> str:
    """The command that judges one case of a stage again; the stage's own where there is none."""
    name, slash, compute = case.rpartition("/")
    if not stage.command or not case:
        return stage.command
    extra = f" --case {shlex.quote(name if slash else case)}"
    return stage.command + extra + (f" --compute {shlex.quote(compute)}" if slash else "")


def counted(counts: Mapping[Status, int]) -> str:
    """Counts in words, worst first, the absent left out: `2 FAIL, 31 PASS`."""
    return ", ".join(f"{counts[s]} {s}" for s in SEVERITY if counts.get(s)) or "none"
