"""`harness diff` marks the line that was changed, and leaves the framework as it found it."""

import importlib
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType

import mlx.core as mx
import pytest
from click.testing import CliRunner

from port.diffusion_gemma import cuts
from stages import oplog
from stages.asked import table_of
from stages.cli import main
from stages.diff import Bench, Opened, chosen
from stages.diff_far import far
from stages.shelf import Question

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
        ("layer", "long", "5"),
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
    "router: root left out": ("moe.Router.scores", " * self._root)", ")", ("router", "experts_or_short")),
    "router: softmax over all": (
        "moe.Router.select",
        "mx.softmax(mx.take_along_axis(scores_NE, experts_NK, axis=-1), axis=-1, precise=True)",
        "mx.take_along_axis(mx.softmax(scores_NE, axis=-1, precise=True), experts_NK, axis=-1)",
        ("layer", "short"),
    ),
    "moe: gate and up exchanged": (
        "moe.Experts._visit",
        "gate, up = both[..., : self._inner], both[..., self._inner :]",
        "up, gate = both[..., : self._inner], both[..., self._inner :]",
        ("moe", "experts"),
    ),
    "moe: weights left out": ("moe.Experts.__call__", "(y_NKD * weights_NK[..., None])", "y_NKD", ("moe", "experts")),
    "mlp: exact GELU": ("ops._geglu_changed", "", "", ()),
    "layer: no norm after attention": (
        "layers.Layer._run",
        "self.post_attention_layernorm(attend(self.input_layernorm(h_BTD)))",
        "attend(self.input_layernorm(h_BTD))",
        ("layer", "long"),
    ),
    "layer: the other scalar": (
        "layers.Layer.encode",
        "self.encoder_scalar)",
        "self.layer_scalar)",
        ("layer", "long", "encoder"),
    ),
    "soft embeddings: not scaled": (
        "conditioning.soft_from_logits",
        ".astype(dtype) * embedding.scale",
        ".astype(dtype)",
        ("soft_embeddings", "short", "from=logits"),
    ),
    "logits: cap left out on one side": (
        "linear.Matrix.apply",
        "transpose=True, **self._code())",
        "transpose=True, **self._code()) * 1.001",
        ("logits", "short"),
    ),
    "sampler: more than the bound": (
        "samplers.accept_entropy",
        "- mx.cummax(sorted_BC, axis=-1) <= bound",
        "<= bound",
        ("accept_entropy", "decisions"),
    ),
    "sampler: never stuck": (
        "samplers.accept_confidence",
        "return sure_BC | forced_BC",
        "return sure_BC",
        ("accept_confidence", "decisions", "forced"),
    ),
    "masks: window one too wide": (
        "masks.encoder_mask",
        "query_T1 < key_S + window",
        "query_T1 <= key_S + window",
        ("encoder_masks", "long"),
    ),
}
