"""The port's stages, one callable each: numpy in, numpy out, parameters named as in the table of stages.

Legend: B batch, T tokens, D hidden, H heads, d head width, W timestep width, V vocabulary with [MASK], N steps.
"""

# ruff: noqa: ARG001 -- every cut takes `at`, whether or not its stage looks at it.

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten

from . import checkpoint as checkpoints
from . import convert as conversion
from . import diffusion, unmask
from .borders import Trace, digest, judged, optional, rows, to_mlx, to_numpy
from .config import read_json
from .model import Block, MetaDiffusion, additive

At = Mapping[str, Any]


@dataclass(frozen=True)
class Opened:
    """A model and where it came from."""

    model: MetaDiffusion
    directory: Path


def load(checkpoint: Path, compute: str) -> Opened:
    """Open a MetaDiffusion, or a Llama, which is converted."""
    directory = Path(checkpoint)
    if read_json(directory).get("model_type") == "llama":
        return Opened(conversion.converted(directory, checkpoints.COMPUTE[compute]), directory)
    return Opened(checkpoints.load(directory, compute), directory)


def weights(opened: Opened, at: At) -> Trace:
    """Name and digest of every parameter: names uint8 [n, 96], digests uint8 [n, 32]."""
    found = sorted(tree_flatten(opened.model.parameters()))
    digests = b"".join(digest(to_numpy(x)) for _, x in found)
    return {"names": rows([n for n, _ in found], 96), "digests": np.frombuffer(digests, np.uint8).reshape(-1, 32)}


def convert_ar(opened: Opened, at: At) -> Trace:
    """What a Llama becomes, by the way that the occurrence names; zeros digest what no Llama has.

    The embedding is digested without [MASK], whose row, an average, is `mask_row` [D]; in a head that row is zeros.
    """
    config = conversion.configure(opened.directory, at["as"])
    made = {name: x for group in conversion.groups(opened.directory, config) for name, x in group.items()}
    names, found = sorted(made), []
    for name in names:
        longer = name == conversion.MASKED
        new = any(part in name for part in conversion.NEW)
        found.append(bytes(32) if new else digest(to_numpy(made[name][: config.vocab_size] if longer else made[name])))
    fields = {name: value for name, value in dataclasses.asdict(config).items() if name != "ar_shift"}
    return {
        "names": rows(names, 96),
        "digests": np.frombuffer(b"".join(found), np.uint8).reshape(-1, 32),
        "config": np.frombuffer(json.dumps(fields, sort_keys=True).encode(), np.uint8),
        "mask_row": to_numpy(made[conversion.MASKED][-1]),
    }


def _block(opened: Opened, at: At) -> Block:
    return opened.model.layers[at["layer"]]


def timestep_embedding(opened: Opened, at: At, *, t: np.ndarray) -> Trace:
    """[B, W]."""
    return {"emb": to_numpy(opened.model.timestep_emb(to_mlx(t)))}


def rmsnorm(opened: Opened, at: At, *, x: np.ndarray) -> Trace:
    """[B, T, D]; which norm, the occurrence says."""
    if "layer" not in at:
        return {"h": to_numpy(opened.model.norm(to_mlx(x)))}
    layer = _block(opened, at)
    return {"h": to_numpy((layer.input_layernorm if at.get("input") else layer.post_attention_layernorm)(to_mlx(x)))}


def rope(opened: Opened, at: At, *, x: np.ndarray) -> Trace:
    """Rotated queries or keys [B, H, T, d]."""
    return {"x": to_numpy(_block(opened, at).self_attn.rotary_emb(to_mlx(x)))}


def attention(opened: Opened, at: At, *, x: np.ndarray, padding: np.ndarray) -> Trace:
    """[B, T, D]."""
    given = to_mlx(x)
    return {"h": to_numpy(_block(opened, at).self_attn(given, additive(optional(padding), given.dtype)))}


def mlp(opened: Opened, at: At, *, x: np.ndarray) -> Trace:
    """[B, T, D]."""
    return {"h": to_numpy(_block(opened, at).mlp(to_mlx(x)))}


def block(opened: Opened, at: At, *, h: np.ndarray, emb: np.ndarray, padding: np.ndarray) -> Trace:
    """[B, T, D]."""
    given = to_mlx(h)
    return {"h": to_numpy(_block(opened, at)(given, to_mlx(emb), additive(optional(padding), given.dtype)))}


def forward(opened: Opened, at: At, *, ids: np.ndarray, t: np.ndarray, padding: np.ndarray) -> Trace:
    """Logits [B, T, V] under their three gates."""
    return judged(opened.model(to_mlx(ids), to_mlx(t), optional(padding)))


def corrupt(
    opened: Opened,
    at: At,
    *,
    ids: np.ndarray,
    padding: np.ndarray,
    u: np.ndarray,
    uniform: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> Trace:
    """T [B], masked and noisy [B, T]."""
    t = diffusion.shares(u, float(low), float(high))
    mask_id = opened.model.config.mask_token_id
    masked, noisy = diffusion.corrupt(to_mlx(ids), optional(padding), to_mlx(t), to_mlx(uniform), mask_id)
    return {"t": t, "masked": to_numpy(masked), "noisy": to_numpy(noisy)}


def loss(opened: Opened, at: At, *, logits: np.ndarray, labels: np.ndarray, masked: np.ndarray, t: np.ndarray) -> Trace:
    """Both losses and the number of positions in them, 0-d."""
    given, pad = (to_mlx(logits), to_mlx(labels), to_mlx(masked)), opened.model.config.pad_token_id
    return {
        "flat": to_numpy(diffusion.flat_loss(*given, pad)),
        "elbo": to_numpy(diffusion.elbo_loss(*given, to_mlx(t), pad)),
        "count": to_numpy(diffusion.chosen(*given[1:], pad).sum().astype(mx.int32)),
    }


def grad(
    opened: Opened,
    at: At,
    *,
    noisy: np.ndarray,
    labels: np.ndarray,
    masked: np.ndarray,
    t: np.ndarray,
    padding: np.ndarray,
) -> Trace:
    """The flat loss' gradient of every parameter as a matrix, the dots of its name as hyphens."""
    model = opened.model

    def scored(ids: mx.array) -> mx.array:
        logits = model.predict(ids, to_mlx(t), optional(padding))
        return diffusion.flat_loss(logits, to_mlx(labels), to_mlx(masked), model.config.pad_token_id)

    _, found = nn.value_and_grad(model, scored)(to_mlx(noisy))
    named = ((name.replace(".", "-"), to_numpy(x)) for name, x in tree_flatten(found))
    return {f"grads.{name}": x.reshape(-1, x.shape[-1]) for name, x in named}


def unmask_step(
    opened: Opened, at: At, *, logits: np.ndarray, ids: np.ndarray, confidence: np.ndarray, count: np.ndarray
) -> Trace:
    """The best tokens and their probabilities; and, decided on the given confidence, the next ids."""
    seed = at["schedule"] == "seed"
    token, own = unmask.best(to_mlx(logits), () if seed else unmask.never(opened.model))
    choose = unmask.reveal_seed if seed else unmask.reveal
    after = choose(to_mlx(ids), token, to_mlx(confidence), count, opened.model.config.mask_token_id)
    return {"predicted": to_numpy(token), "confidence": to_numpy(own), "ids": to_numpy(after)}


def generate(opened: Opened, at: At, *, start: np.ndarray, steps: np.ndarray) -> Trace:
    """Final ids [B, T], and how many each step was to reveal [n, B]."""
    counts: list[np.ndarray] = []

    def watch(_step: int, _logits: mx.array, _before: mx.array, count: np.ndarray, _after: mx.array) -> None:
        counts.append(count.astype(np.int32))

    final = unmask.generate(opened.model, to_mlx(start), int(steps), at["schedule"], watch)
    return {"ids": to_numpy(final), "counts": np.stack(counts)}
