"""The smallest bound that would pass: by stage and tensor the largest value that was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from reports.report import Report
from reports.text import printable
from reports.verdict import Status, Verdict, kind, number


@dataclass(frozen=True, slots=True)
class Need:
    """One output in one tier: its gate, the bound now, and the smallest that every stored value would pass.

    Attributes:
        smallest: infinite where a verdict has no number, so that no bound would do.
        verdict: the one that asks for the most.
    """

    stage: str
    tensor: str
    tier: str
    gate: str
    bound: float
    smallest: float
    verdict: Verdict

    @property
    def passes(self) -> bool:
        """Whether the bound as it is now is enough."""
        return self.smallest <= self.bound


def needs(verdicts: Iterable[Verdict]) -> list[Need]:
    """One entry per stage, tensor, tier and gate, in order of first appearance; verdicts that wait are left out."""
    worst: dict[tuple[str, str, str, str, str], Verdict] = {}
    for verdict in verdicts:
        if not verdict.gate or verdict.status not in {Status.PASS, Status.FAIL}:
            continue
        key = (verdict.model, verdict.stage, verdict.tensor, verdict.tier, verdict.gate)
        if key not in worst or _asks(verdict) > _asks(worst[key]):
            worst[key] = verdict
    return [
        Need(v.stage, v.tensor, v.tier, kind(v.gate), math.inf if v.bound is None else v.bound, _asks(v), v)
        for v in worst.values()
    ]


def _asks(verdict: Verdict) -> float:
    return verdict.value if verdict.value is not None and not math.isnan(verdict.value) else math.inf


def lines(report: Report) -> list[str]:
    """A table of the outputs whose values are not all 0, worst first in its stage's place; the others are counted."""
    found = needs(report.verdicts)
    shown = [need for need in found if need.smallest > 0 or not need.passes]
    rows = [("stage", "tensor", "tier", "gate", "bound", "smallest that passes", "")]
    for need in shown:
        smallest = number(need.smallest) if math.isfinite(need.smallest) else "none would"
        verdict = need.verdict
        where = "" if need.passes else f"over it: {verdict.case} {verdict.mode} {verdict.occurrence}"
        rows.append(
            (need.stage, need.tensor, need.tier, need.gate, number(need.bound), smallest, printable(where).strip())
        )
    cells = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    texts = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (cells if shown else ())
    ]
    return [*texts, f"{len(found) - len(shown)} of {len(found)} outputs would pass a bound of 0"]
