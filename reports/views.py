"""What the templates are given: the report's parts in the order and grouping in which a page shows them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from reports.chart import Chart, charts
from reports.heat import Heat, Histogram, heats, histograms
from reports.more import Mutant, NearTie
from reports.report import Report, StageInfo, Tally, Tensor, by_stage, case_command, excess, tally, tier_of
from reports.verdict import SEVERITY, Status, Verdict, Worst, kind

ELEMENTS = 60  #: worst elements on a page
FAILURES = 200  #: failing verdicts on a page
ENTRIES = 64  #: entries of one list or mapping of a manifest that are written out

Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Element:
    """A worst element with its verdict; `index` names each axis where the axes are known."""

    verdict: Verdict
    worst: Worst
    index: str


@dataclass(frozen=True, slots=True)
class CaseView:
    """One case of one stage: its tally, its charts (none where every value is 0) and a table row per output."""

    name: str
    anchor: str
    command: str
    found: Tally
    charts: list[Chart]
    rows: list[tuple[str, str, Verdict | None, Verdict | None]]


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage with all that its page shows; `unlocks` are the stages that come after it."""

    stage: StageInfo
    found: Tally
    tier: str
    href: str
    unlocks: tuple[str, ...]
    gives: list[tuple[str, Tensor]]
    charts: list[Chart]
    by_occurrence: list[tuple[str, str, Verdict | None, Verdict | None]]
    cases: list[CaseView]
    elements: list[Element]
    more_elements: int
    failing: list[Verdict]
    more_failing: int
    nothing_differs: str
    heats: list[Heat]
    differing: int
    histograms: list[Histogram]
    mutants: list[Mutant]
    margins: list[NearTie]
    common: Pairs
    manifests: list[tuple[str, Pairs]]


def stage_views(report: Report) -> list[StageView]:
    """A view per stage, in the report's order."""
    return [_stage_view(report, stage, found) for stage, found in by_stage(report)]


def _stage_view(report: Report, stage: StageInfo, found: Tally) -> StageView:
    axes = {tensor.name: tensor.axes.split() for tensor in stage.gives}
    elements = _elements(found, axes)
    failing = found.failing()
    maps, differing = heats(found.verdicts, {v.tensor: _axes(axes, v.tensor) for v in found.verdicts})
    cases: dict[str, list[Verdict]] = {}
    for verdict in found.verdicts:
        if verdict.case:
            cases.setdefault(verdict.case, []).append(verdict)
    flat = {case: dict(flattened(report.manifests[case])) for case in cases if case in report.manifests}
    common, manifests = _split(flat)
    return StageView(
        stage=stage,
        found=found,
        tier=tier_of(report, found),
        href=file_name(stage.model, stage.name),
        unlocks=tuple(s.name for s in report.stages if s.model == stage.model and stage.name in s.after),
        gives=_alike(stage.gives),
        charts=charts(found.verdicts),
        by_occurrence=paired(_worst_of(found.verdicts), tensors=False),
        cases=[_case_view(stage, case, verdicts) for case, verdicts in cases.items()],
        elements=elements[:ELEMENTS],
        more_elements=max(0, len(elements) - ELEMENTS),
        failing=failing[:FAILURES],
        more_failing=max(0, len(failing) - FAILURES),
        nothing_differs=_in_words(found),
        heats=maps,
        differing=differing,
        histograms=histograms(found.verdicts),
        mutants=[one for one in report.mutants if (one.model, one.stage) == (stage.model, stage.name)],
        margins=[one for one in report.margins if (one.model, one.stage) == (stage.model, stage.name)],
        common=common,
        manifests=manifests,
    )


def _alike(gives: tuple[Tensor, ...]) -> list[tuple[str, Tensor]]:
    """Neighbouring outputs with the same axes and gates under their names together."""
    groups = groupby(gives, key=lambda tensor: (tensor.axes, tensor.gates))
    named = [list(group) for _, group in groups]
    return [(", ".join(tensor.name for tensor in group), group[0]) for group in named]


def _case_view(stage: StageInfo, case: str, verdicts: list[Verdict]) -> CaseView:
    flat = all(v.value == 0 for v in verdicts)
    return CaseView(
        name=case,
        anchor=f"case-{slug(case)}",
        command=case_command(stage, case),
        found=tally(verdicts),
        charts=[] if flat else charts(verdicts),
        rows=paired(verdicts, tensors=True),
    )


def paired(verdicts: list[Verdict], *, tensors: bool) -> list[tuple[str, str, Verdict | None, Verdict | None]]:
    """Rows of (occurrence, tensor, forced verdict, free verdict), in order of first appearance.

    Args:
        verdicts: of one stage. A second verdict for the same place gets a row of its own.
        tensors: whether each tensor has its row, or each occurrence.
    """
    rows: dict[tuple[str, str, int], list[Verdict | None]] = {}
    for verdict in verdicts:
        side = int(verdict.mode == "free")
        turn = 0
        while True:
            row = rows.setdefault((verdict.occurrence, verdict.tensor if tensors else "", turn), [None, None])
            if row[side] is None:
                row[side] = verdict
                break
            turn += 1
    return [(occurrence, tensor, *row) for (occurrence, tensor, _), row in rows.items()]  # type: ignore[misc]


def _worst_of(verdicts: list[Verdict]) -> list[Verdict]:
    """Of each occurrence and mode, the verdict furthest from its bound."""
    worst: dict[tuple[str, str], Verdict] = {}
    for verdict in verdicts:
        if not verdict.gate:
            continue
        key = (verdict.occurrence, verdict.mode)
        if key not in worst or excess(verdict) > excess(worst[key]):
            worst[key] = verdict
    return list(worst.values())


def _elements(found: Tally, axes: Mapping[str, list[str]]) -> list[Element]:
    """The worst elements, those of the verdicts furthest from their bounds first."""
    order = sorted(found.verdicts, key=lambda v: (SEVERITY.index(v.status), v.mode != "forced", -excess(v)))
    return [Element(v, w, _index(w.index, _axes(axes, v.tensor))) for v in order for w in v.worst]


def _axes(axes: Mapping[str, list[str]], tensor: str) -> list[str]:
    """A tensor's axes; `keys.3` may stand in the table as `keys.*`."""
    return axes.get(tensor) or axes.get(f"{tensor.rpartition('.')[0]}.*", [])


def _index(index: tuple[int, ...], axes: list[str]) -> str:
    if len(axes) != len(index):
        return ", ".join(map(str, index)) or "the only element"
    return ", ".join(f"{axis}={place}" for axis, place in zip(axes, index, strict=True)) or "the only element"


def _in_words(found: Tally) -> str:
    """What to say where there is no differing element to show."""
    judged = [v for v in found.verdicts if v.status is not Status.LOCKED]
    if not judged:
        return "Nothing was judged here, so there is nothing to compare."
    if all(kind(v.gate) == "exact" and v.status is Status.PASS for v in judged):
        return (
            f"Nothing differs: each of the {len(judged)} tensors compared is bit for bit the oracle's, "
            f"over {_count(len({v.case for v in judged}), 'case')} and "
            f"{_count(len({v.occurrence for v in judged}), 'occurrence')}."
        )
    return "No verdict here came with differing elements."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _split(flat: Mapping[str, Mapping[str, str]]) -> tuple[Pairs, list[tuple[str, Pairs]]]:
    """What all manifests agree on, and by case the rest."""
    if not flat:
        return [], []
    first = next(iter(flat.values()))
    common = {k: v for k, v in first.items() if len(flat) > 1 and all(other.get(k) == v for other in flat.values())}
    rest = [(case, [pair for pair in pairs.items() if pair[0] not in common]) for case, pairs in flat.items()]
    return list(common.items()), rest


def flattened(value: Any, prefix: str = "") -> Pairs:
    """Nested mappings and lists as (dotted name, text) pairs; names sorted, and large containers only counted."""
    if isinstance(value, Mapping | list | tuple) and value:
        if prefix and len(value) > ENTRIES:
            return [(prefix, f"{len(value)} entries")]
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        named = sorted((str(key), inner) for key, inner in items) if isinstance(value, Mapping) else list(items)
        return [pair for key, inner in named for pair in flattened(inner, f"{prefix}.{key}" if prefix else str(key))]
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return [(prefix, text)] if prefix else []


def slug(name: str) -> str:
    """A name that is safe as a file name and an anchor, and another one for every other name."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else f"~{ord(c):x}~" for c in name)
    return safe or "~"


def file_name(model: str, stage: str) -> str:
    """The file name of a stage's page; one too long for a file system is cut and told apart by its hash."""
    name = f"{slug(model)}.{slug(stage)}"
    if len(name) > 150:
        name = f"{name[:100]}~{hashlib.sha256(name.encode()).hexdigest()[:24]}"
    return f"{name}.html"
