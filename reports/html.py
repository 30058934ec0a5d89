"""The report as pages: an index and one page per stage, each a single file that needs nothing else.

Styles and script are inlined, a content security policy forbids every fetch and every other script, names are
escaped, and the bytes depend on the report alone: no clock, no set order, no machine path.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports.graph import Graph, layout
from reports.more import Cell, Trajectory
from reports.report import Report, by_stage, counted, gate_of, state_of, tally, tier_of
from reports.text import summary
from reports.verdict import Status, Verdict, line, measured, number
from reports.views import Pairs, StageView, flattened, slug, stage_views

STATES = {"accepted": "accepted", "revealed": "revealed before", "renoised": "re-noised", "last": "best at the end"}
HERE = Path(__file__).parent
#: Stands at the head of every page, so that only pages of ours are ever removed.
MARK = "<!doctype html>\n<!-- lockstep report -->"


def write(folder: Path, report: Report) -> list[Path]:
    """Write the pages of `report` into `folder`, and remove those of stages it no longer has.

    Each page is written beside and renamed, the index last, so that a reader never sees half a page. Files in
    the folder that this function did not write are left alone.

    Returns:
        The pages, the index first.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = pages(report)
    for name, text in reversed(texts.items()):
        _replace(folder / name, text)
    for old in sorted(folder.glob("*.html")):
        if old.name not in texts and _is_ours(old):
            old.unlink()
    return [folder / name for name in texts]


def pages(report: Report) -> dict[str, str]:
    """The text of every page by file name, `index.html` first."""
    views = stage_views(report)
    environment = _environment()
    hrefs = {(view.stage.model, view.stage.name): view.href for view in views}
    states = {(view.stage.model, view.stage.name): state_of(view.stage) for view in views}
    shared = {
        "report": report,
        "hrefs": hrefs,
        "states": states,
        "trajectory_pages": trajectory_pages(report),
        "STATES": STATES,
    }
    texts = {"index.html": environment.get_template("index.html.j2").render(shared | _index(report, views))}
    template = environment.get_template("stage.html.j2")
    for place, view in enumerate(views):
        around = {
            "before": views[place - 1] if place else None,
            "next": views[place + 1] if view is not views[-1] else None,
        }
        texts[view.href] = template.render(shared | around | {"view": view, "stage": view.stage})
    for model, name in trajectory_pages(report).items():
        mine = [one for one in report.trajectories if one.model == model]
        texts[name] = environment.get_template("trajectory.html.j2").render(
            shared | {"model": model, "trajectories": mine, "grids": [_grids(one) for one in mine]}
        )
    return texts


def trajectory_pages(report: Report) -> dict[str, str]:
    """The file name of each model's page of trajectories."""
    return {one.model: f"trajectories.{slug(one.model)}.html" for one in report.trajectories}


def _grids(one: Trajectory) -> list[tuple[str, list[list[tuple[Cell, bool, str]]]]]:
    """Both sides as rows of (cell, whether it differs from the other side's, what to say of it)."""
    sides = [("oracle", one.oracle, one.port), ("port", one.port, one.oracle)]
    found = []
    for side, rows, others in sides:
        grid = []
        for step, row in enumerate(rows):
            cells = []
            for place, cell in enumerate(row):
                other = others[step][place] if others else cell
                words = f"step {step + 1} of {len(rows)}, position {place}: {_told(cell)}"
                words += f". The other side: {_told(other)}" if cell != other else ""
                cells.append((cell, cell != other, f"{side}, {words}"))
            grid.append(cells)
        found.append((side, grid))
    return found


def _told(cell: Cell) -> str:
    best = f", best {cell.best!r}" if cell.best != cell.token else ""
    return f"{cell.token!r} {STATES[cell.state]}{best}"


def _index(report: Report, views: list[StageView]) -> dict[str, Any]:
    found = tally(report.verdicts)
    models = list(dict.fromkeys(view.stage.model for view in views))
    graphs: dict[str, Graph] = {}
    for model in models:
        graphs[model] = layout({v.stage.name: v.stage.after for v in views if v.stage.model == model})
    cells = {(v.stage.model, v.stage.name, case.name): case for v in views for case in v.cases}
    machine: Pairs = flattened(report.environment)
    return {
        "views": views,
        "models": models,
        "graphs": graphs,
        "found": found,
        "stage_counts": Counter(v.stage.state or Status.INCONCLUSIVE for v in views),
        "bits": next((text for text in summary(report) if text.startswith("max differing bits")), ""),
        "tier": tier_of(report, found),
        "cases": [case for case in found.cases if case],
        "cells": cells,
        "machine": machine,
        "firsts": {model: _first(report, model) for model in models},
    }


def _first(report: Report, model: str) -> Verdict | None:
    """Where a model first diverges: of the first stage of the table that fails, the worst forced verdict, or a free."""
    for stage, found in by_stage(report):
        if stage.model == model:
            failing = found.failing()
            if failing:
                return failing[0]
    return None


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    style, script = ((HERE / "static" / name).read_text("utf-8") for name in ("report.css", "report.js"))
    environment.globals |= {
        "MARK": Markup(MARK),  # noqa: S704 - ours, not a name from a file
        "style": Markup(style),  # noqa: S704
        "script": Markup(script),  # noqa: S704
        "policy": f"default-src 'none'; img-src data:; style-src {_source(style)}; script-src {_source(script)}",
        "Status": Status,
    }
    environment.filters |= {
        "number": number,
        "line": line,
        "gate": gate_of,
        "measured": _measured,
        "counted": counted,
        "slug": slug,
        "state": state_of,
    }
    return environment


def _measured(verdict: Verdict | None) -> str:
    return "-" if verdict is None or verdict.value is None else measured(verdict.gate, verdict.value)


def _source(text: str) -> str:
    """How a content security policy names an inline block."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _replace(path: Path, text: str) -> None:
    data = text.encode()
    if path.is_file() and not path.is_symlink() and path.read_bytes() == data:
        return
    handle, beside = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(beside).chmod(0o644)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK.encode()
