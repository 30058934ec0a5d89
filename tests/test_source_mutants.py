"""The sample of source mutations: its table is whole and explained, and a mutation is really in what is judged."""

import ast
import subprocess
import sys
from dataclasses import replace

import pytest
import source_mutants
import source_parity
import source_units
from click.testing import CliRunner
from source_edits import ROOT, Edit, UnfitError
from source_mutants import COUNT, Row

FILE = "port/metadiffusion/diffusion.py"
TEXT = (ROOT / FILE).read_text()
LINE = next(line for line in TEXT.splitlines() if line.startswith("    return masked_BT if pad is None"))
SCORED = Edit(FILE, 50, "ReplaceComparisonOperator_NotEq_Eq", LINE, LINE.replace("!=", "=="))


def test_the_table_holds_the_whole_sample_and_explains_every_survivor():
    drawn, rows = source_mutants.load(source_mutants.TABLE)
    assert drawn["seed"] == source_mutants.SEED
    assert len({row.edit for row in rows}) == len(rows) == COUNT
    assert not [row.edit.place for row in rows if not row.killer and not row.why]
    assert {row.killer.partition(":")[0] for row in rows} <= {"", "parity", "tests", "time", "gone"}


def test_every_mutation_of_the_table_is_other_python():
    for edit in (row.edit for row in source_mutants.load(source_mutants.TABLE)[1] if source_mutants.fits(row.edit)):
        text = (ROOT / edit.file).read_text()
        assert ast.dump(ast.parse(edit.mutated(text))) != ast.dump(ast.parse(text)), edit.place


def test_a_table_that_is_written_is_read_as_it_was(tmp_path):
    rows = [Row(SCORED, "parity: loss"), Row(replace(SCORED, after=""), why="it may")]
    source_mutants.save({"seed": 1}, rows, tmp_path / "table.json")
    assert source_mutants.load(tmp_path / "table.json") == ({"seed": 1}, rows)


def test_a_mutation_changes_its_lines_alone_wherever_they_are_now():
    lines = TEXT.splitlines()
    at = lines.index(LINE)
    assert SCORED.mutated(TEXT).splitlines() == [*lines[:at], SCORED.after, *lines[at + 1 :]]
    assert SCORED.found("\n\n" + TEXT) == at + 3
    assert replace(SCORED, line=10_000).found(TEXT + LINE) == len(lines) + 1  # of two the nearer
    assert replace(SCORED, after="").mutated(TEXT).splitlines() == lines[:at] + lines[at + 1 :]
    with pytest.raises(UnfitError, match=r"diffusion\.py:50 holds no more: return masked_BT"):
        SCORED.mutated(TEXT.replace("labels_BT != pad", "labels_BT  !=  pad"))


def test_a_planted_mutation_is_imported_and_no_file_changes():
    code = (
        "import source_edits, source_mutants, sys, mlx.core as mx\n"
        "from test_source_mutants import SCORED\n"
        "source_edits.plant(SCORED)\n"
        "from port.metadiffusion.diffusion import chosen\n"
        "print(chosen(mx.array([[5, 0]]), mx.array([[True, True]]), 0).tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tests", capture_output=True, text=True, check=False)
    assert done.stdout == "[[False, True]]\n", done.stderr
    assert (ROOT / FILE).read_text() == TEXT


def test_only_what_runs_the_mutated_statement_is_asked():
    at = TEXT.splitlines().index(LINE) + 1
    assert source_parity.statement(SCORED) == {at}
    assert source_parity.reaches(SCORED, {FILE: {at}})
    assert not source_parity.reaches(SCORED, {FILE: {at - 10}})
    constant = next(line for line in TEXT.splitlines() if line.startswith("LEAST"))
    outside = Edit(FILE, 10, "NumberReplacer", constant, constant.replace("1e-3", "1.001"))
    assert source_parity.reaches(outside, {FILE: {at}})  # what runs at import matters to all that uses the module
    assert not source_parity.reaches(outside, {"port/shards.py": {at}})


def test_a_test_that_fails_with_a_mutation_is_its_killer(tmp_path):
    copy = source_units.Copy(tmp_path)
    test = "tests/test_metadiffusion_train.py::test_losses_are_the_numbers_worked_out_by_hand"
    assert copy.failing(SCORED, [test]) == f"tests: {test.removeprefix('tests/')}"
    assert copy.failing(replace(SCORED, after=LINE.replace("pad is None", "None is pad")), [test]) == ""
    assert (copy.folder / FILE).read_text() == TEXT == (ROOT / FILE).read_text()


def test_what_was_judged_before_an_interruption_stays_in_the_table(tmp_path, monkeypatch):
    def kill(edits, *_):
        yield edits[0], "parity: loss"
        raise KeyboardInterrupt

    other = Row(replace(SCORED, after=LINE.replace("pad is None", "pad is not None")), why="it may")
    monkeypatch.setattr(source_mutants, "TABLE", tmp_path / "table.json")
    monkeypatch.setattr(source_parity, "controls", lambda _: ([], {}))
    monkeypatch.setattr(source_parity, "kill", kill)
    source_mutants.save({}, [Row(SCORED), other], source_mutants.TABLE)
    assert CliRunner().invoke(source_mutants.main, ["--record"]).exit_code == 1
    assert source_mutants.load(source_mutants.TABLE) == ({}, [Row(SCORED, "parity: loss"), other])


def test_a_mutation_that_leaves_python_at_import_is_killed(tmp_path):
    constant = next(line for line in TEXT.splitlines() if line.startswith("LEAST"))
    gone = Edit(FILE, 10, "Leaving", constant, "raise SystemExit(2)")
    killer = source_units.Copy(tmp_path).failing(gone, ["tests/test_metadiffusion_train.py"])
    assert killer == "tests: Python is left as a test file is imported"


@pytest.mark.parametrize(
    ("row", "code", "said"),
    [
        (Row(SCORED, "parity: loss"), 0, "1 mutations in 0 s: 1 parity"),
        (Row(SCORED, why="nobody pads"), 0, "1 mutations in 0 s: 1 survived"),
        (Row(SCORED, "tests: one", "nobody pads"), 0, "needs its explanation no more: tests: one"),
        (Row(SCORED), 1, "survives and nothing says why it may"),
    ],
)
def test_a_survivor_that_nothing_explains_is_exit_code_1(row, code, said, capsys):
    assert source_mutants.show([row], 0) == code
    assert said in capsys.readouterr().out
