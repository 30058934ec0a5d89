"""What the harness costs beside the models: wall time of a full run against the seconds inside the models' own calls.

A full run records every nano case from the oracle and judges the port by it, from an empty ledger. A model's own
seconds are those of its cuts and of its ordinary runs, borders excluded; loading a model, reading and writing goldens,
hashing, gates and reports are the harness' cost. `nox -s bench` prints the ratio as a table and as JSON; aim 1.25.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table as Grid

from stages import dump, run, sides
from stages.diffusion_gemma import TABLE

AIM = 1.25


def quiet(_message: str) -> None:
    """Nobody watches a benchmark's progress."""


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Seconds inside each side's own calls, added up as they happen."""
    seconds: Counter[str] = Counter()
    plain_call, plain_taps = sides.call, sides.taps

    def call(module: ModuleType, *rest: Any) -> Any:
        start = time.perf_counter()
        try:
            return plain_call(module, *rest)
        finally:
            # A call that is watched for the files it executes is the harness' second one: not the model's cost.
            if sys.getprofile() is None:
                seconds[module.__name__.partition(".")[0]] += time.perf_counter() - start

    def taps(side: str, model: str) -> SimpleNamespace:
        def ordinary(loaded: Any, plan: dict[str, Any], emit: Callable[..., None]) -> None:
            def timed(*crossing: Any) -> None:
                start = time.perf_counter()
                emit(*crossing)
                seconds[side] -= time.perf_counter() - start

            start = time.perf_counter()
            plain_taps(side, model).run(loaded, plan, timed)
            seconds[side] += time.perf_counter() - start

        return SimpleNamespace(run=ordinary)

    monkeypatch.setattr(sides, "call", call)
    monkeypatch.setattr(sides, "taps", taps)
    return seconds


# The reference leaves config.json to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_overhead(
    benchmark: Any,
    inside: Counter[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run, "CACHE", tmp_path / "cache")
    pairs = list(dump.wanted(TABLE, (), ()))
    spent: Counter[str] = Counter()

    def full() -> run.Answer:
        inside.clear()
        start = time.perf_counter()
        for case, compute in pairs:
            dump.record(TABLE, case, compute, tmp_path, full=False, progress=quiet)
        spent["record"] = time.perf_counter() - start
        answer = run.Run(TABLE, run.Question(goldens=tmp_path, again=True)).answer()
        spent["full"] = time.perf_counter() - start
        return answer

    # The oracle's imports and compiled kernels belong to the machine, not to a run. The port stays out until the
    # recording is done: a process that imported it may not record.
    dump.record(TABLE, *pairs[0], tmp_path, full=False, progress=quiet)

    answer = benchmark.pedantic(full, rounds=1)
    judged = spent["full"] - spent["record"]
    rows = {
        "record": (spent["record"], inside["oracle"]),
        "judge": (judged, inside["port"]),
        "full": (spent["full"], inside["oracle"] + inside["port"]),
    }
    found = {
        name: {"wall_s": round(wall, 3), "models_s": round(models, 3), "ratio": round(wall / models, 3)}
        for name, (wall, models) in rows.items()
    }
    benchmark.extra_info.update(found)
    grid = Grid("", "wall, s", "models alone, s", "ratio", "aim", box=None)
    for name, row in found.items():
        aim = str(AIM) if name == "full" else ""
        grid.add_row(name, f"{row['wall_s']:.1f}", f"{row['models_s']:.1f}", f"{row['ratio']:.2f}", aim)
    with capsys.disabled():
        print()
        Console(width=80).print(grid)
        print(json.dumps({"schema": 1, "aim": AIM, "overhead": found}))
    assert {str(row.status) for row in answer.verdicts} == {"PASS"}
