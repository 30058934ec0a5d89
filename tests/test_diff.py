"""`harness diff` marks the line that was changed, and leaves the framework as it found it."""

import contextlib
import functools
import importlib
import inspect
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType

import mlx.core as mx
import numpy as np
import pytest
from click.testing import CliRunner

from port.diffusion_gemma import cuts
from stages.asked import table_of
from stages.cli import main
from stages.diff import opened as diff
from stages.diff.far import far
from stages.diff.meant import chosen
from stages.diff.opened import Bench, Opened
from stages.places import ROOT
from stages.shelf import Question
from stages.trace import child as oplog_child
from stages.trace import oplog

TABLE = table_of("diffusion_gemma")
_loaded = {}


def load(where, compute):
    if (where, compute) not in _loaded:
        _loaded[where, compute] = cuts.load(where, compute)
    return _loaded[where, compute]


def opened(stage: str, case: str, *words: str, compute: str = "float32", free: bool = False) -> Opened:
    question = Question((stage,), (case,), (compute,))
    held, occurrence = chosen(TABLE, question, stage, words, load)
    return Bench(TABLE, held, load(held.checkpoint, compute)).open(TABLE[stage], occurrence, free=free)


@contextmanager
def changed(where: str, old: str, new: str) -> Iterator[tuple[str, int]]:
    """A function of the port with one line changed, its lines still numbered as they are: gives (file, line)."""
    module_name, _, path = where.partition(".")
    module = importlib.import_module(f"port.diffusion_gemma.{module_name}")
    owner_name, _, name = path.rpartition(".")
    owner = getattr(module, owner_name) if owner_name else module
    original = vars(owner)[name]
    lines, start = inspect.getsourcelines(original)
    source = "".join(lines)
    assert source.count(old) == 1, f"{where} has {old!r} {source.count(old)} times"
    line = start + source[: source.index(old)].count("\n")
    namespace = dict(vars(module))
    moved = "\n" * (start - 1) + textwrap.dedent(source.replace(old, new))
    exec(compile(moved, inspect.getsourcefile(original), "exec"), namespace)
    planted = namespace[name]
    assert isinstance(planted, FunctionType)
    holders = [owner] if owner_name else [m for n, m in list(sys.modules.items()) if n.startswith("port.")]
    places = [(one, key) for one in holders for key, value in list(vars(one).items()) if value is original]
    try:
        for one, key in places:
            setattr(one, key, planted)
        yield f"port/diffusion_gemma/{module_name}.py", line
    finally:
        for one, key in places:
            setattr(one, key, original)


MUTANTS = {
    "rope: one position late": (
        "rope.Rope.__call__",
        "base=self._theta, scale=1.0, offset=offset)",
        "base=self._theta, scale=1.0, offset=offset + 1)",
        ("layer", "long", "4"),
    ),
    "rope: of neighbours": (
        "rope.Rope.__call__",
        "x_BHTd, self._width, traditional=False",
        "x_BHTd, self._width, traditional=True",
        ("attention", "long"),
    ),
    "attention: scores scaled": (
        "attention.Attention._mix",
        "scale=1.0, mask=mask",
        "scale=self._width**-0.5, mask=mask",
        ("layer", "long"),
    ),
    "attention: keys in place of queries' norm": (
        "attention.Attention._project",
        "self.q_norm(q_BTHd)",
        "self.k_norm(q_BTHd)",
        ("attention", "long"),
    ),
    "attention: keys are not normed": (
        "attention.Attention._project",
        "self.k_norm(k_BTGd).transpose",
        "k_BTGd.transpose",
        ("layer", "long"),
    ),
    "router: root left out": ("moe.Router.scores", " * self._root)", ")", ("router", "short")),
    "router: softmax over all": (
        "moe.Router.select",
        "mx.softmax(mx.take_along_axis(scores_NE, experts_NK, axis=-1), axis=-1, precise=True)",
        "mx.take_along_axis(mx.softmax(scores_NE, axis=-1, precise=True), experts_NK, axis=-1)",
        ("layer", "short"),
    ),
    "moe: weights left out": ("moe.Experts.__call__", "(y_NKD * weights_NK[..., None])", "y_NKD", ("moe", "experts")),
    "mlp: up twice": ("mlp.MLP.__call__", "geglu(self.gate_proj(x_BTD)", "geglu(self.up_proj(x_BTD)", ("mlp", "short")),
    "layer: no norm after attention": (
        "layers.Layer._run",
        "self.post_attention_layernorm(attend(self.input_layernorm(h_BTD)))",
        "attend(self.input_layernorm(h_BTD))",
        ("layer", "long"),
    ),
    "soft embeddings: not scaled": (
        "conditioning.soft_from_logits",
        ".astype(dtype) * embedding.scale",
        ".astype(dtype)",
        ("soft_embeddings", "short", "from=logits"),
    ),
    "logits: not capped": (
        "embed.Embedding.head",
        "self._softcap(self.table.apply(rows))",
        "self.table.apply(rows)",
        ("logits", "short"),
    ),
    "sampler: more than the bound": (
        "samplers.accept_entropy",
        "- mx.cummax(sorted_BC, axis=-1) <= bound",
        "<= bound",
        ("accept_entropy", "entropy"),
    ),
    "sampler: sure below the threshold": (
        "samplers.accept_confidence",
        "(confidence_BC >= threshold)",
        "(confidence_BC > threshold)",
        ("accept_confidence", "decisions", "made", "equal"),
    ),
    "moe: up is sliced from the middle": (
        "moe.Experts._visit",
        "gate, up = both[..., : self._inner], both[..., self._inner :]",
        "gate, up = both[..., : self._inner], both[..., self._inner // 2 : -self._inner // 2]",
        ("moe", "experts"),
    ),
    "masks: window one too wide": (
        "masks.encoder_mask",
        "query_T1 < key_S + window",
        "query_T1 <= key_S + window",
        ("encoder_masks", "long"),
    ),
}

# What is changed here runs no operation of its own: the operation marked is the one that got something else, and its
# line, or that of what it got, stands with it.
HANDED_ON = {
    "layer: the other scalar": (
        "layers.Layer.encode",
        "self.encoder_scalar)",
        "self.layer_scalar)",
        ("layer", "long", "encoder"),
    ),
    "sampler: never stuck": (
        "samplers.accept_confidence",
        "return sure_BC | forced_BC",
        "return sure_BC",
        ("accept_confidence", "decisions", "forced"),
    ),
    "moe: gate and up exchanged": (
        "moe.Experts._visit",
        "gate, up = both[..., : self._inner], both[..., self._inner :]",
        "up, gate = both[..., : self._inner], both[..., self._inner :]",
        ("moe", "experts"),
    ),
}


@pytest.fixture(autouse=True)
def _one_oracle(monkeypatch):
    """The oracle does the same for every mutant: one process an occurrence."""
    monkeypatch.setattr(diff, "oracle_log", _once)


@functools.cache
def _once(asked, _logs=None):
    return oplog_child.oracle_log(asked)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_changed_line_is_the_first_that_introduces_an_error(name):
    where, old, new, (stage, case, *words) = MUTANTS[name]
    with changed(where, old, new) as (file, line):
        found = opened(stage, case, *words)
    assert found.diverges
    assert found.first is not None, found.notes
    assert (found.first.at.file, found.first.at.line) == (file, line), (line, found.first)
    assert found.first.at in found.first.path
    before = found.steps[: found.first.step]
    assert all(step.total is None or step.total.equal for step in before)


@pytest.mark.parametrize("name", HANDED_ON)
def test_what_is_handed_on_wrongly_is_marked_where_it_is_used(name):
    where, old, new, (stage, case, *words) = HANDED_ON[name]
    with changed(where, old, new) as (file, line):
        found = opened(stage, case, *words)
    path = [(site.file, site.line) for site in found.first.path]
    assert (
        (file, line) in path or f"{file}:{line}" in found.first.why or found.first.at.function == where.split(".")[-1]
    )
    assert found.first.why


def test_where_nothing_diverges_it_says_so_and_shows_the_room():
    found = opened("layer", "long", free=True)
    assert not found.diverges
    assert found.first is None
    assert found.notes == []
    assert all(step.total is not None and step.total.equal for step in found.steps)
    assert len(found.steps) > 50
    assert all(one.equal for one in (*found.arrived.values(), *found.left.values()))
    gate, value, bound = found.margins["h"]
    assert gate == "within"
    assert value < bound


def test_introduced_and_inherited_are_told_apart():
    where, old, new, (stage, case, *words) = MUTANTS["attention: scores scaled"]
    with changed(where, old, new):
        found = opened(stage, case, *words)
    marked, after = found.steps[found.first.step], found.steps[found.first.step + 1 :]
    assert marked.introduced.relative_rms > 0.01
    assert marked.inherited.equal
    known = [step for step in after if step.introduced is not None]
    assert len(known) > 30
    assert all(step.introduced.equal for step in known)
    assert not known[-1].inherited.equal


def test_what_reaches_a_layer_in_the_ordinary_run_is_inherited():
    with changed("embed.Embedding.canvas", "* self.scale", "* (self.scale * 1.01)"):
        found = opened("layer", "long", "4", free=True)
    assert not found.diverges
    assert not found.arrived["h"].equal
    assert not found.left["h"].equal


def test_nothing_is_patched_any_more():
    def everything():
        owners = (mx, mx.fast, mx.random, mx.linalg, mx.fft, mx.array)
        return {(id(owner), name): value for owner in owners for name, value in vars(owner).items()}

    before = everything()
    with contextlib.suppress(ZeroDivisionError), oplog.recording() as log:
        _ = mx.exp(mx.ones(3)) + 1
        raise ZeroDivisionError
    assert [op.name for op in log.ops] == ["ones", "exp", "add"]
    after = everything()
    assert before.keys() == after.keys()
    assert all(after[key] is value for key, value in before.items())
    traced = []
    compiled = mx.compile(lambda x: traced.append(1) or mx.exp(x))
    compiled(mx.ones(2))
    compiled(mx.ones(2))
    assert len(traced) == 1  # compiled again


def test_every_distance_is_what_it_says():
    a, b = (
        np.array([1, 2, -2, 4], np.float32),
        np.array([1, np.nextafter(np.float32(2), np.float32(3)), 2, 4], np.float32),
    )
    found = far(a, b)
    assert (found.differing, found.of, found.max_abs) == (2, 4, 4.0)
    assert found.max_ulp == 2 * int(np.float32(2).view(np.uint32))
    assert found.relative_rms == pytest.approx(4 / 5)
    assert found.cosine == pytest.approx((1 + 4 - 4 + 16) / 25)
    assert found.norm_ratio == pytest.approx(1)
    assert far(a, a).equal
    assert far(a, b.astype(np.float64)) is None
    assert far(np.zeros(2, np.float32), np.ones(2, np.float32)).relative_rms is None


def test_the_command_says_it_in_text_and_in_json():
    plain = CliRunner().invoke(main, ["diff", "sampler_step", "canvas=0/step=5", "--forced"])
    assert plain.exit_code == 0, plain.output
    assert "nothing diverges" in plain.output
    asked = ["diff", "mlp", "2", "--case", "short", "--compute", "float32", "--forced", "--json"]
    with changed("mlp.MLP.__call__", "self.down_proj(", "2 * self.down_proj(") as (file, line):
        told = CliRunner().invoke(main, asked)
    assert told.exit_code == 1, told.output
    document = json.loads(told.stdout)
    assert document["schema"] == 1
    assert (document["first"]["at"]["file"], document["first"]["at"]["line"]) == (file, line)
    assert document["outs"]["h"]["norm_ratio"] == pytest.approx(2)
    unknown = CliRunner().invoke(main, ["diff", "layer", "77", "--case", "long"])
    assert unknown.exit_code == 2
    assert "encoder/layer=4 (long/bfloat16)" in unknown.output


def test_opening_never_loads_both_sides_into_one_process():
    asked = "from stages.cli import main\nimport sys\ntry:\n    main(['diff', 'layer', '4', '--case', 'long'])\n"
    told = asked + "except SystemExit as end:\n    print({n.partition('.')[0] for n in sys.modules}, end.code)"
    child = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, cwd=ROOT, check=True)
    last = child.stdout.splitlines()[-1]
    assert last.endswith(" 0")
    assert "'port'" in last
    assert not any(f"'{name}'" in last for name in ("oracle", "optiq", "torch", "mlx_lm"))
