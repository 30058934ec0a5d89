"""The search for an edit that mends: what it finds, that it is in memory only, and that edited code can do no harm."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from goldens import canary
from stages import sides
from stages.asked import table_of
from stages.diff.planted import grade, hunk
from stages.mend.child import Check
from stages.mend.found import Mend, Searched, ranked
from stages.mend.queue import Ran, suspicions
from stages.mend.runner import Runner
from stages.mend.search import Search
from stages.mutate import mutants_of
from stages.places import ROOT
from stages.planted import function_of
from stages.shelf import Question, Shelf
from stages.trace.sites import Site

MODEL = "diffusion_gemma"
TABLE = table_of(MODEL)
FILE = "port/diffusion_gemma/samplers.py"
TEXT = (ROOT / FILE).read_text()


@pytest.fixture(scope="module")
def held():
    shelf = Shelf(TABLE, Question(), canary.canary(), sides.cuts("port", MODEL).load)
    return shelf.take(next(case for case in TABLE.cases if case.name == "decisions"), "float32")


@pytest.fixture(scope="module")
def checks(held):
    return [
        Check(str(held.golden.path), str(held.checkpoint), "float32", held.tier, stage, occurrence, "decisions")
        for stage in ("accept_confidence", "renoise")
        for occurrence in held.golden.occurrences(stage)[:3]
    ]


def edit(old: str, new: str, *, imported: bool = False) -> dict:
    assert TEXT.count(old) == 1
    return {"file": FILE, "text": TEXT.replace(old, new), "imported": imported}


def digest() -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted((ROOT / "port").rglob("*.py")))).hexdigest()


def test_edited_code_can_do_no_harm(checks):
    before = digest()
    hidden = "    if last:\n        return hidden_BC"
    with Runner(MODEL, {}) as runner:
        same = edit(hidden, f"    assert last is not None\n{hidden}")
        assert runner.held(same, checks, 2.0) == (len(checks), "")
        wrong, why = runner.held(edit(hidden, hidden.replace("last", "not last")), checks, 2.0)
        assert wrong == 0
        assert why == "accepted"
        endless = (
            "    while True:\n        try:\n            last = last\n        except Exception:\n            pass\n"
        )
        forever = edit(hidden, endless + hidden)
        assert "no end" in runner.held(forever, checks, 0.5)[1]
        assert "MemoryError" in runner.held(edit(hidden, f"    bytearray(1 << 40)\n{hidden}"), checks, 2.0)[1]
        assert "SyntaxError" in runner.held(edit(hidden, f"    (\n{hidden}"), checks, 2.0)[1]
        assert runner.deaths == 0
        dies = edit(hidden, f"    __import__('os')._exit(3)\n{hidden}")
        assert runner.held(dies, checks, 2.0) == (0, "the process died")
        assert runner.deaths == 2  # an edit before might have been to blame, so it was asked twice
        assert runner.held(same, checks, 2.0) == (len(checks), "")
        assert runner.used > 0
    assert digest() == before


def test_what_runs_on_import_is_exchanged_too_and_put_back(checks):
    with Runner(MODEL, {}) as runner:
        odd = edit("def renoise(keep_BC", "def renoise(keep_BC=None, *_", imported=True)
        assert runner.held(odd, checks, 3.0)[0] == 3  # the stages before it pass
        assert runner.survey(checks, often=0, seconds=3.0)[-1]["why"] == ""


def test_texts_in_memory_are_the_port(checks):
    wrong = TEXT.replace("sure_BC | forced_BC", "sure_BC")
    with Runner(MODEL, {FILE: wrong}) as runner:
        found = runner.survey(checks[:3], often=0, seconds=3.0)
        assert "accepted" in [one["why"] for one in found]
        assert any(file == FILE for file, _ in found[0]["lines"])
        right = {"file": FILE, "text": TEXT, "imported": False}
        assert runner.held(right, checks, 2.0) == (len(checks), "")


def test_the_line_of_a_bug_is_found_by_mending_it(held):
    mutant = next(one for one in mutants_of(MODEL) if one.name == "not all accepted on the last step")
    path, _, source = function_of(MODEL, mutant)
    text = path.read_text().replace(source, source.replace(mutant.old, mutant.new))
    where = hunk(MODEL, mutant)
    failing = next(one for one in held.golden.occurrences("accept_confidence") if one.endswith("last"))
    marked = Site(FILE, where.lines[0] + 2, "accept_confidence")
    search = Search(TABLE, held, "accept_confidence", failing, {FILE: text}, {}, marked, seconds=15.0)
    found = search.run()
    assert found.mends, found
    best = found.mends[0]
    assert grade(where, best.at.file, best.at.line) == "line"
    assert best.held > 10
    assert "`if False:` -> `if last:` mends it" in found.told()


def test_what_only_the_ordinary_run_does_wrong_is_mended_in_that_run():
    file, right, wrong = "port/diffusion_gemma/canvas.py", "    if not whole:\n", "    if whole:\n"
    text = (ROOT / file).read_text()
    assert text.count(right) == 1
    line = text[: text.index(right)].count("\n") + 1
    shelf = Shelf(TABLE, Question(), canary.canary(), sides.cuts("port", MODEL).load)
    coarse = shelf.take(next(case for case in TABLE.cases if case.name == "coarse"), "bfloat16")
    asked = TABLE, coarse, "stopping", "run=1/canvas=0/step=2", {file: text.replace(right, wrong)}, {}
    alone = Search(*asked, Site(file, line, "advance"), seconds=1.0).run()
    assert not alone.tried, alone
    found = Search(*asked, Site(file, line, "advance"), seconds=8.0, mode="free").run()
    assert found.mends, found
    assert found.mends[0].at.line == line


def test_where_the_port_is_right_nothing_is_tried(held):
    search = Search(TABLE, held, "renoise", held.golden.occurrences("renoise")[0], {}, {}, None, seconds=5.0)
    found = search.run()
    assert not found.tried
    assert "passes" in found.told()


def test_lines_that_only_failing_occurrences_run_are_suspected_first():
    check = Check("g", "c", "float32", "exact", "s", "o", "case")
    before = replace(check, stage="earlier")
    failing = [Ran(check, "x", 0.1, {("f", 1), ("f", 2)}), Ran(check, "x", 0.1, {("f", 1), ("f", 3)})]
    passing = [Ran(before, "", 0.1, {("f", 1), ("f", 4)}), Ran(before, "", 0.1, {("f", 1)})]
    found = suspicions(failing, passing)
    assert found == pytest.approx({("f", 1): 3**-0.5, ("f", 2): 0.5**0.5, ("f", 3): 0.5**0.5})
    passing = [replace(one, check=check) for one in passing]
    assert suspicions(failing, passing)["f", 1] > found["f", 1]


def test_the_marked_line_is_believed_before_others_and_many_edits_before_few():
    def mend(line: int, score: float) -> Mend:
        return Mend(Site("f", line, "g"), "", "", 1, score)

    found = [mend(1, 0.5), mend(2, 0.9), mend(1, 0.5)]
    assert [one.at.line for one in ranked(found, None)] == [1, 1, 2]
    assert ranked(found, Site("f", 2, "g"))[0].at.line == 2
    assert Searched(tried=3, seconds=2.0).told() == "none of 3 edits of the port that were tried in 2 s mends it"


def test_the_command_says_what_mends():
    asked = ["diff", "--planted", "less than the bound", "--forced", "--json", "--mend", "0"]
    command = [sys.executable, "-m", "stages.cli", *asked]  # in a process of its own: what is planted stays planted
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout)
    assert found["mend"] is None
