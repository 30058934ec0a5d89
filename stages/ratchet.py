"""The portable tier's bounds, and what they catch: one is loosened only while no bug gets through that it caught."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .asked import table_of
from .errors import HarnessError
from .mutate import Found, Report
from .places import MODELS

RECORD = Path(__file__).parent / "mutants" / "portable.json"
RENEW = "harness mutate --tier portable --record"


def bounds() -> dict[str, dict[str, Any]]:
    """Gate and bound of every tensor in the portable tier, by "model/stage/tensor", " free" behind it in free runs."""
    return {
        f"{model}/{stage.name}/{tensor}{mode}": {"gate": gate.name, "bound": gate.bound}
        for model in MODELS
        for stage in table_of(model).stages
        for tensor, out in sorted(stage.gives.items())
        for mode, gate in (("", out.portable), (" free", out.free))
        if gate is not None
    }


def committed() -> dict[str, Any]:
    """What was recorded; empty tables before the first time."""
    if not RECORD.exists():
        return {"bounds": {}, "mutants": {}}
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def loosened() -> list[str]:
    """Bounds that are not the recorded ones or tighter, each with what mends it."""
    held, found = committed()["bounds"], []
    for name, now in bounds().items():
        before = held.get(name)
        if before is None:
            found.append(f"{name} has a bound of {now['bound']:g} that was never recorded: {RENEW}")
        elif before["gate"] != now["gate"] or now["bound"] > before["bound"]:
            was, is_ = (f"{one['gate']} {one['bound']:g}" for one in (before, now))
            found.append(f"{name} is {is_}, and was {was} when mutants were last held to it: {RENEW}")
    return found


def unreasoned() -> list[str]:
    """Tensors whose gate, in either tier, says no reason."""
    return [
        f"{model}/{stage.name}/{tensor}"
        for model in MODELS
        for stage in table_of(model).stages
        for tensor, out in stage.gives.items()
        if not all(gate.because.strip() for gate in (out.exact, out.portable, out.free) if gate is not None)
    ]


def lost(report: Report) -> list[str]:
    """Mutants that the portable tier caught when it was recorded, and no longer catches there or before.

    One whose row says why nothing there can see it may be lost; one that survives without such a reason is lost too,
    and a reason that is no longer true has to go.
    """
    held, found = committed()["mutants"], []
    for one in report.found:
        before = held.get(_name(one), {}).get("at")
        if one.mutant.unseen:
            if one.caught_at:
                found.append(f"SEEN: {_name(one)} is caught at {one.caught_at}: its row is not to call it unseen")
        elif before and one.caught_at not in _until(one.model, before):
            found.append(f"LOST: {_name(one)} was caught at {before}, now at {one.caught_at or 'no stage'}")
        elif one.status == "SURVIVED":
            found.append(f"LOST: {_name(one)} is caught at no stage, and its row does not say why")
    return found


def _until(model: str, stage: str) -> list[str]:
    """The stages of a table up to this one; only this one where it is no stage of it any more."""
    names = [one.name for one in table_of(model).stages]
    return names[: names.index(stage) + 1] if stage in names else [stage]


def invisible(report: Report) -> Iterator[str]:
    """Mutants that the portable tier cannot see, with the size of what they change, and those that it sees late."""
    for one in report.found:
        if one.status == "SURVIVED":
            row = one.verdict
            size = "" if row is None else f"{row.tensor} {row.value:.3g} of {row.bound} at {row.stage}"
            yield f"INVISIBLE: {_name(one)}: {size}. {one.mutant.unseen}"
        elif one.status == "ELSEWHERE":
            yield f"LATER: {_name(one)}: not at {one.mutant.stage}, where it was made, but at {one.caught_at}"


def record(report: Report) -> None:
    """Write the bounds as they are now, and what they catch.

    Raises:
        HarnessError: a mutant that was caught no longer is, or one could not be judged.
    """
    if gone := lost(report):
        raise HarnessError(
            f"nothing was recorded, because bounds let a bug through that they caught: {'; '.join(gone)}"
        )
    if any(one.status == "ERROR" for one in report.found):
        raise HarnessError(f"nothing was recorded: a mutant could not be judged. See which with: {RENEW}")
    mutants = {_name(one): _kept(one) for one in report.found}
    RECORD.write_text(json.dumps({"bounds": bounds(), "mutants": mutants}, indent=1, sort_keys=True) + "\n")


def _kept(one: Found) -> dict[str, Any]:
    row = one.verdict
    value = None if row is None or row.value is None else f"{row.value:.3g}"
    tensor = row.tensor if row else ""
    return {"at": one.caught_at, "tensor": tensor, "value": value, "bound": None if row is None else row.bound}


def _name(one: Found) -> str:
    return f"{one.model}/{one.mutant.name}"
