"""The gates as tests: `pytest -k stage=moe` judges exactly that stage, and first whatever it waits for.

The numbers are those of `harness run moe`: the same engine, the same ledger.
"""

import pytest

from reports.verdict import Status, line
from stages.cli import table_of
from stages.places import MODELS
from stages.run import Answer, Run
from stages.shelf import Question

MODES = ("forced", "free")
ROWS = [(model, stage.name) for model in MODELS for stage in table_of(model).stages]


@pytest.fixture(scope="session")
def answers(request: pytest.FixtureRequest) -> dict[str, Answer]:
    """One run a model, over the stages that were selected: what one stage computed serves the next."""
    asked: dict[str, list[str]] = {}
    for item in request.session.items:
        if item.get_closest_marker("parity"):
            asked.setdefault(item.callspec.params["model"], []).append(item.callspec.params["stage"])
    return {model: Run(table_of(model), Question(stages=tuple(stages))).answer() for model, stages in asked.items()}


@pytest.mark.parity
@pytest.mark.parametrize(("model", "stage"), ROWS, ids=lambda name: name)
def test_stage(model: str, stage: str, answers: dict[str, Answer], record_property) -> None:
    needed = set(table_of(model).closure([stage]))
    verdicts = [row for row in answers[model].verdicts if row.stage in needed]
    rows = [row for row in verdicts if row.stage == stage]
    worst = {mode: max((row.value or 0.0 for row in rows if row.mode == mode), default=0.0) for mode in MODES}
    tiers = ", ".join(sorted({row.tier for row in rows}))
    record_property(
        "parity", f"{stage}: {len(rows)} verdicts, forced {worst['forced']:g}, free {worst['free']:g}, {tiers}"
    )
    wrong = [line(row) + f"  [{row.case}, {row.mode}]" for row in verdicts if row.status is not Status.PASS]
    assert not wrong, "\n".join(
        [f"{len(wrong)} verdicts of {stage} are not PASS; see: harness run {stage}", *wrong[:10]]
    )
    assert rows
