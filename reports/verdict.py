"""What one comparison found: a status, one number against one bound, and an address.

A verdict is the harness's only result type. Tables, pages, the ledger and the exit code are all read off it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reports.spread import Spread

#: What the number of a gate counts, by the gate's name; a gate that is not listed has a plain ratio.
UNITS = {"exact": "differing bits", "kl": "nats", "agreement": "misses"}


class Status(StrEnum):
    """How a comparison ended. Only PASS is success."""

    PASS = "PASS"  # noqa: S105 - a status, not a password
    FAIL = "FAIL"
    ERROR = "ERROR"
    LOCKED = "LOCKED"
    STALE = "STALE"
    INCONCLUSIVE = "INCONCLUSIVE"


#: Worst first: the order in which one status stands for many.
SEVERITY = (Status.ERROR, Status.FAIL, Status.STALE, Status.INCONCLUSIVE, Status.LOCKED, Status.PASS)

_STATUSES = {str(status): status for status in Status}


@dataclass(frozen=True, slots=True)
class Worst:
    """One element that differs.

    Attributes:
        index: position in the tensor, one number per axis.
        oracle: the oracle's value as printed.
        port: the port's value as printed.
        oracle_bits: the oracle's bit pattern, such as `0xc080`.
        port_bits: the port's bit pattern.
        ulp: distance in units in the last place of the tensor's dtype; NaN where it has no meaning.
    """

    index: tuple[int, ...]
    oracle: str
    port: str
    oracle_bits: str
    port_bits: str
    ulp: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one gate on one tensor of one occurrence.

    Attributes:
        model: the table's model, such as `diffusion_gemma`.
        stage: the stage's name.
        occurrence: which of the stage's runs, such as `canvas=0/step=3/layer=2`; empty for a whole stage.
        mode: `forced` (fed the oracle's inputs) or `free` (the port's ordinary run).
        case: the case and its compute dtype, such as `long/bfloat16`.
        tensor: the output judged; empty where the verdict is about the whole occurrence.
        status: how it ended.
        gate: the gate's name, such as `exact` or `within(2)`.
        value: what the gate measured; None where nothing could be measured.
        bound: the largest value that passes; None where no gate applied.
        where: the worst element's address by axis names, such as `T=4, D=6`.
        note: what else a reader needs: both values, what is waited for, or how to mend it.
        because: the reason for a gate that is not exact.
        tier: `exact` or `portable`, whichever was in force.
        worst: the elements that differ most, worst first.
        spread: how the two tensors differ as a whole; None where every bit is equal or nothing could be compared.
    """

    model: str
    stage: str
    occurrence: str
    mode: str
    case: str
    tensor: str
    status: Status
    gate: str
    value: float | None
    bound: float | None
    where: str
    note: str
    because: str = ""
    tier: str = "exact"
    worst: tuple[Worst, ...] = ()
    spread: Spread | None = None

    def to_json(self) -> dict[str, str | float | None]:
        """The twelve public fields of a `--json` document.

        JSON has no spelling for a number that is not finite; such a value becomes the text `nan`, `inf` or `-inf`.
        """
        return {
            "model": self.model,
            "stage": self.stage,
            "occurrence": self.occurrence,
            "mode": self.mode,
            "case": self.case,
            "tensor": self.tensor,
            "status": str(self.status),
            "gate": self.gate,
            "value": _finite(self.value),
            "bound": _finite(self.bound),
            "where": self.where,
            "note": self.note,
        }

    def to_record(self) -> list[Any]:
        """Every field in the order declared, of types the json module writes; `from_record` reverses it."""
        worst = [[list(w.index), w.oracle, w.port, w.oracle_bits, w.port_bits, w.ulp] for w in self.worst]
        return [
            self.model,
            self.stage,
            self.occurrence,
            self.mode,
            self.case,
            self.tensor,
            str(self.status),
            self.gate,
            self.value,
            self.bound,
            self.where,
            self.note,
            self.because,
            self.tier,
            worst,
            self.spread and self.spread.to_record(),
        ]

    @classmethod
    def from_record(cls, record: Sequence[Any]) -> Verdict:
        """The verdict whose `to_record` gave `record`.

        Raises:
            ValueError: the record has another number of fields or names an unknown status.
        """
        if len(record) != 16 or record[6] not in _STATUSES:
            raise ValueError(f"a verdict's record is 16 fields with a status seventh, not {record!r:.200}")
        worst = record[14]
        if worst:
            worst = tuple(Worst(tuple(w[0]), *w[1:]) for w in worst)
        spread = record[15] and Spread.from_record(record[15])
        fields = (*record[:6], _STATUSES[record[6]], *record[7:14], worst or (), spread)
        return cls(*fields)


def _finite(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(float(value))


def number(value: float | None) -> str:
    """A measured number as a person reads it: whole counts in full, others with four significant digits."""
    if value is None:
        return "-"
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.4g}"


def kind(gate: str) -> str:
    """A gate's bare name in lower case: `within` for `Within(2)`."""
    return gate.partition("(")[0].strip().lower()


def measured(gate: str, value: float | None) -> str:
    """A value with what it counts: `7 differing bits`, `1 miss`, `0.0012 nats`, `7.1`."""
    unit = UNITS.get(kind(gate), "") if value is not None and math.isfinite(value) else ""
    if value == 1:
        unit = {"differing bits": "differing bit", "misses": "miss", "nats": "nat"}.get(unit, "")
    return f"{number(value)} {unit}".rstrip()


def address(verdict: Verdict) -> str:
    """The verdict's address: `moe[encoder/layer=5].h`, without the parts that are empty."""
    occurrence = f"[{verdict.occurrence}]" if verdict.occurrence else ""
    tensor = f".{verdict.tensor}" if verdict.tensor else ""
    return f"{verdict.stage}{occurrence}{tensor}"


def line(verdict: Verdict) -> str:
    """One line that says it all.

    `FAIL moe[encoder/layer=5].h exact: 7 differing bits (bound 0) at T=4, D=6: oracle -3.9958, port -3.9998`
    """
    gate = f" {kind(verdict.gate)}" if verdict.gate else ""
    found = ""
    if verdict.value is not None:
        bound = "" if verdict.bound is None else f" (bound {number(verdict.bound)})"
        found = f"{measured(verdict.gate, verdict.value)}{bound}"
    found = " at ".join(part for part in (found, verdict.where) if part)
    detail = verdict.note
    if not detail and verdict.worst:
        detail = f"oracle {verdict.worst[0].oracle}, port {verdict.worst[0].port}"
    return ": ".join(part for part in (f"{verdict.status} {address(verdict)}{gate}", found, detail) if part)


def summarize(verdicts: Iterable[Verdict]) -> dict[Status, int]:
    """How many verdicts ended in each status, every status present."""
    counts = dict.fromkeys(Status, 0)
    for verdict in verdicts:
        counts[verdict.status] += 1
    return counts


def overall(statuses: Iterable[Status]) -> Status | None:
    """The one status that stands for many: the worst, or None where there are none."""
    found = set(statuses)
    return next((status for status in SEVERITY if status in found), None)


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """0 when there are verdicts and all PASS; 4 with any ERROR, else 3 with any STALE, else 1."""
    found = {verdict.status for verdict in verdicts}
    if found == {Status.PASS}:
        return 0
    if Status.ERROR in found:
        return 4
    return 3 if Status.STALE in found else 1
