"""What a run found, in the shapes that the reports and the listings want."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from goldens import backend, canary, manifest
from goldens.errors import GoldenError
from goldens.store import Golden
from reports.report import Gate, Report, StageInfo, Tensor
from reports.verdict import Status, overall

from . import trajectory
from .places import MODELS
from .run import Answer
from .shelf import Question
from .spec import Stage, Table


def states(table: Table, answer: Answer) -> dict[str, Status | None]:
    """One status a stage: the worst of its verdicts; None where it has none."""
    return {
        stage.name: overall(row.status for row in answer.verdicts if row.stage == stage.name) for stage in table.stages
    }


def report(table: Table, answer: Answer, question: Question) -> Report:
    """The stages that a run looked at, for the renderers."""
    standing = states(table, answer)
    shown = [stage for stage in table.stages if standing[stage.name] is not None]
    return Report(
        stages=tuple(_info(table, stage, standing[stage.name], answer) for stage in shown),
        verdicts=tuple(answer.verdicts),
        tier=question.tier or "exact",
        manifests=answer.manifests,
        environment={**backend.describe(), **{f"package {k}": v for k, v in manifest.packages().items()}},
        canary=answer.canary,
        differing={case: names for case, names in answer.differs.items() if names},
    )


def told(found: Report, table: Table, answer: Answer) -> Report:
    """The report with what only its pages show: near-ties and trajectories, read from the goldens."""
    return replace(
        found, margins=trajectory.margins(table, answer), trajectories=trajectory.trajectories(table, answer)
    )


def merged(reports: list[Report]) -> Report:
    """The reports of several models as one."""
    first, *rest = reports
    for other in rest:
        first = replace(
            first,
            stages=(*first.stages, *other.stages),
            verdicts=(*first.verdicts, *other.verdicts),
            manifests={**first.manifests, **other.manifests},
            differing={**first.differing, **other.differing},
            margins=(*first.margins, *other.margins),
            trajectories=(*first.trajectories, *other.trajectories),
        )
    return first


def _info(table: Table, stage: Stage, state: Status | None, answer: Answer) -> StageInfo:
    return StageInfo(
        model=table.model,
        name=stage.name,
        after=stage.after,
        state=state,
        waits_for=answer.waits.get(stage.name, ()),
        takes=tuple(Tensor(name, axes) for name, axes in stage.takes.items()),
        gives=tuple(
            Tensor(
                name,
                out.axes,
                tuple(
                    Gate(t, g.name, g.bound, g.because) for t, g in (("exact", out.exact), ("portable", out.portable))
                ),
            )
            for name, out in stage.gives.items()
        ),
        command=f"harness run {stage.name}" + ("" if table.model == MODELS[0] else f" --model {table.model}"),
        seconds=answer.seconds.get(stage.name, 0.0),
        fresh=stage.name in answer.fresh,
    )


def listing(table: Table, answer: Answer) -> list[dict[str, Any]]:
    """The rows of `harness list`."""
    standing = states(table, answer)
    return [
        {
            "name": stage.name,
            "after": list(stage.after),
            "state": str(standing[stage.name] or Status.LOCKED),
            "cases": answer.cases.get(stage.name, []),
            "occurrences": answer.occurrences.get(stage.name, 0),
        }
        for stage in table.stages
    ]


def recorded(folder: Path, cache: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rows of `harness goldens ls`, and what is wrong with each golden that cannot be opened, by its file.

    Raises:
        GoldenError: there is none.
    """
    here = canary.canary(cache)
    rows: list[dict[str, Any]] = []
    broken: dict[str, str] = {}
    for path in sorted(folder.glob("*.h5")):
        try:
            with Golden.open(path) as golden:
                rows.append(_recorded(golden, here))
        except GoldenError as error:
            broken[path.name] = str(error)
    if not rows and not broken:
        raise GoldenError(path=folder, cause="there is no golden in this folder")
    return rows, broken


def _recorded(golden: Golden, here: dict[str, str]) -> dict[str, Any]:
    facts = golden.manifest
    return {
        "file": golden.path.name,
        "model": facts["model"],
        "case": facts["case"]["name"],
        "compute": facts["compute"],
        "oracle": f"{facts['oracle']['name']} {facts['oracle']['version']}",
        "kept": facts["kept"],
        "stages": len(golden.stages()),
        "occurrences": sum(len(golden.occurrences(stage)) for stage in golden.stages()),
        "bytes": golden.path.stat().st_size,
        "differs": canary.differing(facts["canary"], here),
    }


def diagnosis(cache: Path, *folders: Path) -> dict[str, Any]:
    """This machine's backend, and which tier each folder of goldens can be judged in here."""
    here = canary.canary(cache)
    found: dict[str, Any] = {}
    mend = ""
    for folder in folders:
        name = f"goldens/{folder.name}" if folder.name == "local" else "committed"
        paths = sorted(folder.glob("*.h5"))
        differs: set[str] = set()
        broken = []
        foreign = 0
        for path in paths:
            try:
                with Golden.open(path) as golden:
                    recorded = golden.manifest["canary"]
                    if canary.FRAMEWORK in recorded:
                        foreign += 1  # judged by the portable gates everywhere, and no reason to record here
                    else:
                        differs.update(canary.differing(recorded, here))
            except GoldenError as error:
                broken.append(str(error))
                mend = mend or error.mend
        found[name] = {"files": len(paths), "foreign": foreign, "differs": sorted(differs), "broken": broken}
        found[name]["tier"] = None if broken or len(paths) == foreign else "portable" if differs else "exact"
        found[name]["text"] = _text(found[name])
    usable = any(state["tier"] == "exact" for state in found.values())
    do = "harness run" if usable else "harness dump   (records on this machine; needs: pip install -e '.[oracle]')"
    words = {**backend.describe(), **manifest.packages()}
    return {"backend": words, "goldens": found, "exact": usable, "do": mend or do}


def _text(state: dict[str, Any]) -> str:
    if state["broken"]:
        return f"{len(state['broken'])} of {state['files']} are broken: {state['broken'][0]}"
    if not state["files"]:
        return "none"
    if state["differs"]:
        names = ", ".join(state["differs"])
        return f"{state['files']} goldens of another numeric backend; these primitives differ: {names}"
    own, foreign = state["files"] - state["foreign"], state["foreign"]
    others = f", and {foreign} of another framework, judged in the portable one" if foreign else ""
    return f"{own} goldens, judged in the exact tier{others}"
