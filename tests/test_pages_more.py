"""What the pages show beside verdicts: differences, near-ties, planted bugs, past runs, canvases being un-masked."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from test_html import GATES, HOSTILE, ROOT, Page, report, stage, verdict

from reports import html
from reports.bounds import lines, needs
from reports.chart import CHARACTER, charts
from reports.history import KEPT, Past, append, load
from reports.more import Cell, Mutant, NearTie, Trajectory
from reports.report import Gate, Report, Tensor
from reports.text import plain
from reports.verdict import Status
from stages import told
from stages.diffusion_gemma import TABLE
from stages.gates import Exact, Within
from stages.regate import measuring, regated
from stages.shelf import Question
from stages.spec import Out, Stage
from stages.spread import spread
from stages.trajectory import ported

BUG = {"model": "gemma", "stage": "moe", "name": "scale", "expected": "moe", "caught_at": "moe", "tensor": "h"}
BUG |= {"occurrence": "", "mode": "forced", "case": "long/bfloat16", "value": 6.0, "bound": 2.0, "status": "CAUGHT"}


def differing(**rest):
    oracle = np.zeros((1, 40, 64), np.float32)
    port = oracle.copy()
    port[0, 39, 63], port[0, 0, 0] = 0.5, np.nan
    return verdict("moe", 7.0, spread=spread(oracle, port, passed=False), **rest)


def test_a_tensor_that_differs_has_a_map_by_its_axes_and_a_histogram():
    text = html.pages(replace(report(), verdicts=(differing(),)))["gemma.moe.html"]
    page = Page(text)
    assert "across D (64), down T (40)" in page.text
    assert "2560 elements of differing tensors by their distance in ULP" in page.text
    assert "1 element: no number" in page.text
    (found,) = [attributes for _, attributes in page.tags if "data-values" in attributes]
    values = json.loads(found["data-values"])
    assert (len(values), len(values[0]), values[0][0], values[-1][-1]) == (32, 32, "inf", "0.5")


def test_many_differing_tensors_keep_a_page_small():
    found = tuple(differing(occurrence=f"encoder/layer={n}") for n in range(300))
    text = html.pages(replace(report(), verdicts=found))["gemma.moe.html"]
    assert text.count("data-values") == 12
    assert "300 tensors differ in some bit; drawn are the 12 furthest" in Page(text).text
    assert len(text) < 600_000


def test_the_index_names_the_first_divergence_and_tells_past_runs_newest_first():
    runs = [
        Past("aaaa", "hhhh", "", {"PASS": 9}, {"PASS": 3}),
        Past("bbbb", "hhhh", "moe", {"FAIL": 1}, {"FAIL": 1}, "x"),
    ]
    text = Page(html.pages(replace(report(), history=runs))["index.html"]).text
    assert "First divergence In table order, moe is the first stage that does not pass:" in text
    assert text.index("2 moe 1 FAIL 1 FAIL bbbb hhhh x") < text.index("1 everything 3 PASS 9 PASS aaaa hhhh -")


def test_near_ties_and_planted_bugs_stand_on_their_stage_s_page():
    tie = NearTie("gemma", "moe", "long/float32", "encoder", "ids", "N=3", 1e-3, 5.0, 0.25, "[1, 2]", "[1, 3]")
    full = replace(report(), margins=(tie,), mutants=(Mutant.from_json(BUG | {"math": "one more"}, "portable"),))
    pages = html.pages(full)
    text = Page(pages["gemma.moe.html"]).text
    assert "long/float32 encoder ids N=3 0.001 5 0.25 [1, 2] [1, 3]" in text
    assert "scale CAUGHT moe moe.h 6 2 3 portable one more" in text
    assert "None is on record for this stage" in Page(pages["gemma.router.html"]).text


def canvases(name="gemma"):
    oracle = (
        (Cell("accepted", "a", "a"), Cell("renoised", HOSTILE, "c")),
        (Cell("last", "a", "a"), Cell("last", "b", "b")),
    )
    port = (oracle[0], (oracle[1][0], Cell("last", "z", "z")))
    return Trajectory(name, "long/float32", "canvas=0/free", "They differ.", oracle, port)


def test_a_trajectory_shows_both_sides_and_marks_what_differs():
    full = replace(report(), trajectories=(canvases(), replace(canvases(), case="other", port=())))
    page = Page(html.pages(full)["trajectories.gemma.html"])
    cells = [attributes for tag, attributes in page.tags if tag == "td"]
    assert [cell["class"] for cell in cells[:8]] == [
        *("accepted", "renoised", "last", "last differs"),
        *("accepted", "renoised", "last", "last differs"),
    ]
    assert len(cells) == 12
    assert (
        cells[3]["title"] == "oracle, step 2 of 2, position 1: 'b' best at the end. The other side: 'z' best at the end"
    )
    assert "img" not in {tag for tag, _ in page.tags}
    assert "trajectories.gemma.html" in {a.get("href") for _, a in Page(html.pages(full)["index.html"]).tags}


def test_hostile_names_are_inert_in_all_of_it():
    bug = Mutant.from_json(
        dict.fromkeys(BUG, HOSTILE) | {"model": "gemma", "stage": "moe", "value": 1, "bound": 0}, "exact"
    )
    tie = NearTie("gemma", "moe", HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1.0, 1.0, None, HOSTILE, HOSTILE + "x")
    past = Past(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: 1}, {HOSTILE: 1}, HOSTILE)
    axes = stage("moe", Status.FAIL, gives=(Tensor(HOSTILE, "B <img> D", GATES),))
    full = Report((axes,), (differing(tensor=HOSTILE),), history=(past,), mutants=(bug,), margins=(tie,))
    full = replace(full, trajectories=(replace(canvases(), case=HOSTILE, occurrence=HOSTILE, judged=HOSTILE),))
    for text in html.pages(full).values():
        page = Page(text)
        assert "img" not in {tag for tag, _ in page.tags}
        assert [tag for tag, _ in page.tags].count("script") == 1
        assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_the_history_is_bounded_ordered_and_told_once(tmp_path):
    path = tmp_path / "cache" / "history.json"
    runs = [Past(f"{n}", "h", "", {"PASS": n}, {}) for n in range(KEPT + 5)]
    for past in runs:
        append(path, past)
        append(path, past)
    assert load(path) == runs[5:]
    assert sorted(p.name for p in path.parent.iterdir()) == ["history.json", "history.json.lock"]
    path.write_text("{")
    assert load(path) == []


def test_a_run_is_remembered_by_its_question_and_its_first_failure():
    found = told.past(report(), Question(stages=("moe",), cases=("long",), modes=("free",)), None)
    assert (found.asked, found.counts) == ("moe --case long --free", {"PASS": 6, "FAIL": 2, "LOCKED": 1})
    assert found.first.startswith("FAIL moe[encoder/layer=5].h exact: 7 differing bits")


def test_planted_bugs_are_read_and_another_form_is_named(tmp_path, capsys):
    path = tmp_path / "mutants.json"
    assert told.mutants(path) == []
    path.write_text(json.dumps({"schema": 1, "tier": "portable", "mutants": [BUG]}))
    (bug,) = told.mutants(path)
    assert (bug.name, bug.tier, bug.room, bug.math) == ("scale", "portable", 3.0, "")
    path.write_text(json.dumps({"mutants": [{"name": 5}]}))
    assert told.mutants(path) == []
    assert "is not what `harness mutate` writes" in capsys.readouterr().err


ROW = Stage("moe", {"x": "T"}, {"h": Out("T", portable=Within(2, because="one"))})


def with_gate(**rest):
    return replace(ROW, gives={"h": replace(ROW.gives["h"], portable=replace(ROW.gives["h"].portable, **rest))})


def test_bounds_and_reasons_leave_a_measurement_alone_and_all_else_does_not():
    assert measuring(with_gate(bound=9.0, because="other")) == measuring(ROW)
    assert measuring(replace(ROW, after=("router",))) == measuring(ROW)
    assert measuring(with_gate(least=1.0)) != measuring(ROW)
    assert measuring(replace(ROW, gives={"h": Out("T", portable=Exact())})) != measuring(ROW)
    assert len({measuring(one) for one in TABLE.stages}) == len(TABLE.stages)


@pytest.mark.parametrize(
    ("value", "bound", "status"), [(1.5, 1.0, Status.FAIL), (2.5, 3.0, Status.PASS), (float("inf"), 9.0, Status.FAIL)]
)
def test_stored_values_are_held_to_the_bound_as_it_is_now(value, bound, status):
    before = Status.PASS if value <= 2 else Status.FAIL
    row = verdict("moe", value, gate="within", bound=2.0, tier="portable", status=before)
    now = regated(with_gate(bound=bound, because="new"), row)
    assert (now.status, now.bound, now.because) == (status, bound, "new")
    assert now.note == "judged under a bound of 2"


def test_what_was_not_measured_or_waits_stays():
    for row in (verdict("moe", None, note="dtype"), verdict("moe", 9.0, status=Status.LOCKED, tier="portable")):
        assert regated(with_gate(bound=99.0), row) is row


def test_the_smallest_bound_that_would_pass_is_the_largest_value():
    gates = {"gate": "within", "bound": 2.0, "tier": "portable"}
    found = (
        verdict("moe", 1.25, status=Status.PASS, **gates),
        verdict("moe", 1.75, status=Status.PASS, mode="free", **gates),
        verdict("moe", 0.0, tensor="k"),
        verdict("moe", None, tensor="d", note="dtype"),
    )
    by_tensor = {need.tensor: need for need in needs(found)}
    assert (by_tensor["h"].smallest, by_tensor["h"].passes) == (1.75, True)
    texts = lines(Report((stage("moe", gives=(Tensor("h", "T", (Gate("portable", "within", 2.0, "r"),)),)),), found))
    assert re.search(r"moe +h +portable +within +2 +1\.75$", texts[1])
    assert re.search(r"moe +d +exact +exact +0 +none would +over it: long/bfloat16 forced encoder/layer=5$", texts[2])
    assert texts[-1] == "1 of 3 outputs would pass a bound of 0"


def test_the_port_s_decisions_are_rebuilt_from_what_its_verdict_kept():
    oracle = np.arange(12, dtype=np.int32).reshape(3, 4)
    port = oracle.copy()
    port[1, 2] = 99
    kept = verdict("moe", 3.0, spread=spread(oracle, port, passed=False))
    assert np.array_equal(ported(oracle, kept), port)
    assert ported(oracle, verdict("moe")) is oracle
    assert ported(oracle, None) is None
    assert ported(oracle, verdict("moe", None)) is None
    assert ported(np.zeros(10_000, np.int32), verdict("moe", 3.0, spread=kept.spread)) is None


def test_a_reader_that_goes_away_gets_no_traceback():
    command = [sys.executable, "-m", "stages.cli", "goldens", "verify", "--help"]
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(write)
    assert found.stderr == ""
    assert found.returncode != 0


def test_only_what_was_judged_is_said_to_come_from_the_ledger():
    stale = verdict("router", None, "", status=Status.STALE, gate="", bound=None, tensor="", note="it is gone")
    stages = (stage("router", Status.STALE, fresh=False), stage("moe", fresh=False))
    router, moe = plain(Report(stages, (stale, verdict("moe")))).splitlines()[1:4:2]
    assert "from the ledger" not in router
    assert moe.endswith("from the ledger")


def test_the_last_label_of_a_chart_has_room():
    (chart,) = charts([verdict(occurrence="canvas=0/a-long-name/step=12/layer=2")])
    assert all(band.left + 3 + len(band.label) * CHARACTER <= chart.width for band in chart.bands)
