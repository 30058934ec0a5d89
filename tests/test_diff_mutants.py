"""`harness diff` marks the line that a planted bug changed: bugs drawn at random, of which these are so marked."""

import json
import subprocess
import sys

import pytest

from stages.diff.planted import grade, hunk, measure
from stages.mutate import mutants_of
from stages.places import MODELS, ROOT
from stages.planted import Mutant

# Ten of 202 (seed 0), which the rules were written with; and ten of 248 (seed 0), drawn later. MetaDiffusion's own are
# in tests/torch.
DRAWN = (
    "opening and closing counted",
    "picture's values not normed",
    "attention mask not handed on",
    "halves of experts interleaved",
    "scaled before shifted",
    "rows not put back",
    "packed projection not truncated",
    "no beginning",
    "a table of codes multiplied as it lies",
    "entropy of rounded logits",
    "overlay across pictures",
    "the worst experts",
)
# Bugs that compute nothing wrong: a decision of Python, a number counted wrongly, a value handed on.
DECIDED = (
    "no temperature refused",
    "acceptance in sorted order",
    "no canvas window",
    "cursor not moved",
    "masks from position zero",
    "experts left out",
)
EXACT = ("line", "statement")


def population() -> list[tuple[str, Mutant]]:
    return sorted(
        ((model, one) for model in MODELS for one in mutants_of(model)), key=lambda pair: (pair[0], pair[1].name)
    )


def test_the_marked_line_is_the_one_that_was_changed():
    asked = [one for one in mutants_of("diffusion_gemma") if one.name in DRAWN + DECIDED]
    found = list(measure([("diffusion_gemma", mutant, None) for mutant in asked], search=0))
    assert len(found) == len(asked) == len(DRAWN + DECIDED)
    wrong = [
        f"{one.name}: {one.grade}, {one.at} instead of {one.hunk.lines}: {one.why}"
        for one in found
        if one.grade not in EXACT
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "expected"), [(100, "function"), (103, "line"), (104, "line"), (102, "statement"), (90, "elsewhere")]
)
def test_grades(line, expected):
    where = type(hunk(*population()[0]))("port/x.py", (103, 104), (102, 105), (95, 120))
    assert grade(where, "port/x.py", line) == expected
    assert grade(where, "port/y.py", line) == "elsewhere"


def test_every_hunk_lies_in_its_function():
    for model, mutant in population():
        where = hunk(model, mutant)
        assert where.function[0] <= where.statement[0] <= where.lines[0] <= where.lines[1] <= where.statement[1]
        assert where.statement[1] <= where.function[1]


def test_a_planted_bug_is_shown_on_the_command_line():
    command = [sys.executable, "-m", "stages.cli", "diff", "--planted", "router without the root", "--forced", "--json"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 1, told.stderr
    found = json.loads(told.stdout)
    assert found["stage"] == "router"
    assert found["first"]["at"]["file"] == "port/diffusion_gemma/moe.py"
    unknown = subprocess.run(
        [*command[:5], "nothing of that name"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert unknown.returncode == 2
    assert "harness mutate" in unknown.stderr
