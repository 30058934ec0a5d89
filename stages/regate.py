"""What the ledger holds under the bounds of the table as it is now: values were measured, bounds are only compared."""

import hashlib
import math
from dataclasses import is_dataclass, replace
from typing import Any

from reports.verdict import Status, Verdict, number

from .gates import Gate
from .spec import Stage


def measuring(stage: Stage) -> str:
    """A digest of a row without its bounds, reasons and place in the order: while it stands, stored values do."""
    gives = {
        name: (out.axes, out.label, _loose(out.exact), _loose(out.portable), _loose(out.free))
        for name, out in sorted(stage.gives.items())
    }
    return hashlib.sha256(repr((stage.name, stage.takes, gives)).encode()).hexdigest()


def _loose(gate: Gate | None) -> str:
    found: Any = gate
    if is_dataclass(found) and not isinstance(found, type):
        found = replace(found, bound=0.0, because="")
    return repr(found)


def regated(stage: Stage, row: Verdict) -> Verdict:
    """The verdict as the table's present bound has it. One that was not measured, or waits, stays what it is."""
    out = stage.out(row.tensor) if row.tensor else None
    measured = row.value is not None and not math.isnan(row.value)
    if out is None or not measured or row.status not in {Status.PASS, Status.FAIL}:
        return row
    gate = out.gate(row.tier, row.mode)
    if gate.bound == row.bound:
        return replace(row, because=gate.because)
    assert row.value is not None
    status = Status.PASS if row.value <= gate.bound else Status.FAIL
    note = f"judged under a bound of {number(row.bound)}"
    note = f"{row.note}; {note}" if row.note else note
    return replace(row, status=status, bound=gate.bound, because=gate.because, note=note)
