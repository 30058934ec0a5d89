"""`harness diff --bisect` and `--shrink`: the first bad occurrence by halves, and the smallest case that fails."""

import itertools
import json
import math
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import mlx.core as mx
import pytest
from click.testing import CliRunner

from port.diffusion_gemma import cuts
from port.diffusion_gemma.embed import Embedding
from port.diffusion_gemma.layers import Layer
from stages import casefile
from stages.asked import table_of
from stages.cases import plan
from stages.cli import main
from stages.diff import bisect as halving
from stages.diff import shrink as shrinking
from stages.diff.meant import chosen
from stages.errors import UsageError
from stages.places import ROOT, checkpoint_path
from stages.shelf import Question
from stages.spec import Case, Generation

TABLE = table_of("diffusion_gemma")
LONG = next(case for case in TABLE.cases if case.name == "long")
NANO = checkpoint_path("nano")
CONFIG = json.loads((NANO / "config.json").read_text())
_loaded = {}


def load(where, compute):
    if (where, compute) not in _loaded:
        _loaded[where, compute] = cuts.load(where, compute)
    return _loaded[where, compute]


def prompt(seed: int) -> list[int]:
    return plan(replace(LONG, seed=seed), CONFIG)["ids"][0].tolist()


@contextmanager
def wrong_at(*tokens: int):
    """The port off by a little wherever all of some tokens are in what it embeds."""
    right = Embedding.canvas

    def canvas(self, ids):
        h = right(self, ids)
        return h * 1.01 if set(tokens) <= set(ids.flatten().tolist()) else h

    Embedding.canvas = canvas
    try:
        yield
    finally:
        Embedding.canvas = right


@contextmanager
def wrong_from(layer: Layer):
    right = Layer._run

    def run(self, h, attend, scalar):
        y = right(self, h, attend, scalar)
        return y * 1.01 if self is layer else y

    Layer._run = run
    try:
        yield
    finally:
        Layer._run = right


@pytest.fixture(scope="module")
def every_layer(tmp_path_factory):
    """The golden of `long` with all layers of its encoder pass and of both its steps."""
    folder = tmp_path_factory.mktemp("full")
    with shrinking.recorder("diffusion_gemma", "float32") as record:
        assert record(replace(LONG, keep=(), leave=()), folder)
    return folder


@pytest.mark.parametrize("number", range(6))
def test_the_first_bad_layer_is_found_in_few_comparisons(every_layer, number):
    held, _ = chosen(TABLE, Question(cases=("long",), computes=("float32",), goldens=every_layer), "layer", (), load)
    model = load(NANO, "float32")
    with wrong_from(model.layers[number]):
        found = halving.bisect(TABLE, held, model, TABLE["layer"])
    assert found.occurrences[found.first] == f"encoder/layer={number}"
    assert len(found.occurrences) == 18
    assert len(found.compared) <= found.most == math.ceil(math.log2(18)) + 1 == 6
    assert found.rows


def test_a_run_that_is_right_takes_fewer_comparisons(every_layer):
    held, _ = chosen(TABLE, Question(cases=("long",), computes=("float32",), goldens=every_layer), "layer", (), load)
    found = halving.bisect(TABLE, held, load(NANO, "float32"), TABLE["layer"])
    assert (found.first, len(found.compared), found.rows, found.note) == (None, 2, [], "")


def test_the_first_bad_denoising_step_is_found_and_said():
    asked = ["diff", "--bisect", "sampler_step", "--case", "converging", "--json"]
    plain = CliRunner().invoke(main, asked)
    assert plain.exit_code == 0, plain.output
    order = json.loads(plain.stdout)["occurrences"]
    assert len(order) >= 2
    with wrong_from_step(2):
        told = CliRunner().invoke(main, asked)
    document = json.loads(told.stdout)
    assert told.exit_code == 1
    assert document["first"] == order[1]
    assert len(document["compared"]) <= document["most"]


@contextmanager
def wrong_from_step(number: int):
    """The logits of all passes from one on are moved: what is accepted then differs."""
    right, passes = Embedding.head, []

    def head(self, h):
        passes.append(1)
        y = right(self, h)
        return mx.roll(y, 1, axis=-1) if len(passes) >= number else y

    Embedding.head = head
    try:
        yield
    finally:
        Embedding.head = right


def test_what_one_prompt_in_fifty_triggers_is_shrunk_to_a_few_tokens(tmp_path):
    prompts = [set(prompt(seed)) for seed in range(200)]
    pairs = itertools.combinations(dict.fromkeys(prompt(LONG.seed)[3:]), 2)
    pair = next(two for two in pairs if sum(drawn.issuperset(two) for drawn in prompts) == 4)  # one in fifty
    file = tmp_path / "small.json"
    asked = ["diff", "--shrink", "embed", "--case", "long", "--compute", "float32", "--out", str(file)]
    with wrong_at(*pair):
        told = CliRunner().invoke(main, asked)
        assert told.exit_code == 1, told.output
        model, small = casefile.read(file)
        assert model == "diffusion_gemma"
        assert set(small.ids) == set(pair)
        assert len(small.ids) == 2
        assert (small.blocks, small.chunks, small.padding) == ((), (), 0)
        folder = tmp_path / "goldens"
        named = ["--case", str(file), "--compute", "float32"]
        dumped = [sys.executable, "-m", "stages.cli", "dump", *named, "--out", str(folder)]
        subprocess.run(dumped, cwd=ROOT, check=True, capture_output=True)
        opened = CliRunner().invoke(main, ["diff", "embed", *named, "--goldens", str(folder), "--json"])
        assert opened.exit_code == 1
        assert json.loads(opened.stdout)["case"] == "long-embed/float32"
    right = CliRunner().invoke(main, ["diff", "embed", *named, "--goldens", str(folder)])
    assert right.exit_code == 0, right.output


def test_a_case_that_does_not_fail_is_not_shrunk():
    shrinker = shrinking.Shrinker(TABLE, "float32", load, lambda _case, _folder: False)
    with pytest.raises(UsageError, match="long/float32 does not fail up to embed"):
        shrinker.shrink(LONG, "embed")


@pytest.mark.parametrize("passes", range(1, 9))
@pytest.mark.parametrize("layers", range(1, 9))
def test_halving_never_takes_more_than_it_may(passes, layers):
    names = [f"step={p}/layer={n}" for p in range(passes) for n in range(layers)]
    most = math.ceil(math.log2(len(names))) + 1
    for wrong in (None, *range(len(names))):
        compared = []

        def bad(n, wrong=wrong, compared=compared):
            compared.append(n)
            # A later pass is wrong only from the layer on where the first one was.
            return wrong is not None and n >= wrong and n % layers >= wrong % layers

        assert halving._earliest(names, bad) == wrong
        assert len(compared) == len(set(compared)) <= most


def test_runs_that_inherit_nothing_from_each_other_are_not_halved():
    told = CliRunner().invoke(main, ["diff", "--bisect", "accept_confidence", "--case", "decisions"])
    assert told.exit_code == 2
    assert "inherit nothing from each other" in told.output


def test_the_smallest_part_is_found():
    tried = []

    def fails(some):
        tried.append(some)
        return {3, 17} <= set(some)

    assert shrinking._minimal(tuple(range(50)), fails) == (3, 17)
    assert len(tried) < 60
    assert tuple(shrinking._minimal((1, 2, 3), lambda some: True)) == ()
    assert tuple(shrinking._minimal((1, 2, 3), lambda some: False)) == (1, 2, 3)


def test_every_case_of_the_table_survives_a_file(tmp_path):
    for case in TABLE.cases:
        casefile.write(tmp_path / "c.json", TABLE.model, case)
        assert casefile.read(tmp_path / "c.json") == (TABLE.model, case)
    runs = Case("runs", "w", generations=(Generation(None, (("sampler", "entropy-bound"),), 3, 7),), ids=(1, 2))
    casefile.write(tmp_path / "c.json", TABLE.model, runs)
    assert casefile.read(tmp_path / "c.json") == (TABLE.model, runs)


def test_a_prompt_that_is_written_out_leaves_the_canvases_as_they_were():
    drawn = plan(LONG, CONFIG)
    written = plan(replace(LONG, ids=(5, 6, 7), padding=1), CONFIG)
    assert written["ids"].tolist() == [[5, 6, 7]]
    assert written["padding"].tolist() == [[False, True, True]]
    assert (written["canvases"][0]["steps"][0]["ids"] == drawn["canvases"][0]["steps"][0]["ids"]).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "holds no case"),
        ('{"schema": 2, "case": {}}', "should be"),
        ('{"schema": 1, "model": "diffusion_gemma", "case": {"name": "a", "why": "b", "weather": 1}}', "'weather'"),
        ('{"schema": 1, "model": "diffusion_gemma", "case": {"name": "a"}}', "'why'"),
        ('{"schema": 1, "model": "other", "case": {"name": "a", "why": "b"}}', "'other'"),
        ('{"schema": 1, "model": "diffusion_gemma", "case": {"name": "long", "why": "b"}}', "so does the table"),
    ],
)
def test_a_file_that_is_no_case_is_refused_in_one_line(tmp_path, text, said):
    file = tmp_path / "case.json"
    file.write_text(text)
    told = CliRunner().invoke(main, ["run", "embed", "--case", str(file)])
    assert told.exit_code == 2
    assert said in told.output
