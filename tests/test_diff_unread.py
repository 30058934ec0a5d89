"""`harness diff` where no operation on arrays is wrong: refused checkpoints, configurations, settings of libraries."""

import functools
import json
import subprocess
import sys

import jinja2
import pytest
from tokenizers import Tokenizer, models

from stages.diff.planted import measure
from stages.mutate import mutants_of
from stages.places import ROOT
from stages.trace.outward import calling, instead, library, state, states

MODEL = "diffusion_gemma"
MARKED = (
    "bits of every tensor from the default",
    "bits looked up by another path",
    "group size 32",
    "heads of sliding and full layers swapped",
    "end tokens without the turn's end",
    "cut to 64 tokens",
    "lines of blocks kept",
    "template without the special tokens",
)


@functools.cache
def marked() -> dict[str, tuple[str, str]]:
    asked = [(MODEL, one, None) for one in mutants_of(MODEL) if one.name in MARKED]
    return {one.name: (one.grade, f"{one.at} for {one.hunk}: {one.why}") for one in measure(asked, search=0)}


@pytest.mark.parametrize("name", MARKED)
def test_the_marked_line_is_the_one_that_was_changed(name):
    grade, said = marked()[name]
    assert grade == "line", said


def test_a_port_that_refuses_its_checkpoint_is_opened_at_its_loading():
    command = [sys.executable, "-m", "stages.cli", "diff", "weights", "--planted", "group size 32"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 1, told.stderr
    assert told.stdout.startswith("loading, before weights of ")
    assert "the port does not open its checkpoint: CheckpointError" in told.stdout
    assert "port/diffusion_gemma/quantization.py:44: group_size becomes 32 here" in told.stdout
    told = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = json.loads(told.stdout)
    assert found["diverges"]
    assert found["first"]["at"]["line"] == 44


SOURCE = """\
import jinja2
def render(text, **told):
    made = jinja2.Environment(trim_blocks=True)
    return made.from_string(text).render(names=["a"], **told)
"""


def rendered(text: str, **told: str) -> str:
    space: dict = {}
    exec(compile(SOURCE, f"{ROOT}/port/made_up.py", "exec"), space)
    return str(space["render"](text, **told))


def test_calls_into_libraries_are_logged_with_what_they_were_told():
    with calling("port/") as calls:
        rendered("{{ names }}", greeting="hello")
    told = {one.name.rpartition(":")[2]: one for one in calls}
    assert told["Environment.__init__"].told["trim_blocks"] is True
    assert told["Environment.__init__"].line == 3
    assert told["Template.render"].told == {"names": ["a"], "greeting": "hello"}
    assert sys.getprofile() is None


def test_functions_that_are_named_are_logged_whoever_calls_them():
    with calling(None, frozenset({"jinja2/environment.py:Template.render"})) as calls:
        jinja2.Environment().from_string("{{ x }}").render(x=1)
    assert [one.told for one in calls] == [{"x": 1}]


def test_a_library_is_told_something_else_for_as_long():
    text = "{% if true %}\nyes{% endif %}"
    original = jinja2.Environment.__init__
    with calling("port/") as calls:
        assert rendered(text) == "yes"
    made = next(one for one in calls if one.name.endswith("Environment.__init__"))
    assert made.called is not None
    with instead(made.called, "trim_blocks", value=False) as possible:
        assert possible
        assert rendered(text) == "\nyes"
    assert jinja2.Environment.__init__ is original
    with calling("port/") as calls:
        rendered("{{ who }}")
    asked = next(one for one in calls if one.name.endswith("Template.render"))
    assert asked.called is not None
    with instead(asked.called, "who", "you"):
        assert rendered("{{ who }}") == "you"


def test_objects_of_libraries_say_how_they_are_set():
    made = Tokenizer(models.BPE())
    made.enable_truncation(7)
    assert library(made) == "tokenizers.Tokenizer"
    assert state(made)["truncation"]["max_length"] == 7
    kept = jinja2.Environment()
    kept.filters["tojson"] = str
    kind = library(kept)
    found = next(one for one in states(frozenset({kind}))[kind] if one["filters"].get("tojson") == "one of another's")
    assert found["filters"]["upper"] == "its own do_upper"
    assert library(3) == library(ROOT) == ""
