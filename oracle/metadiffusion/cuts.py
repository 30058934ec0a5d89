"""The oracle's stages, one callable each.

B batch, T tokens, D hidden, H heads, d head width, W timestep width, V vocabulary with [MASK], N steps.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from . import diffusion
from .convert import NEW, configure, transferred
from .model import Block, MetaDiffusion, additive
from .reference import Reference, load, load_wide, to_numpy, to_torch

Trace = dict[str, np.ndarray]
At = Mapping[str, Any]

__all__ = ["load", "load_wide"]


def rows(texts: list[str], width: int) -> np.ndarray:
    """Texts as zero-padded uint8 rows."""
    if longest := max((text for text in texts if len(text) > width), key=len, default=""):
        raise ValueError(f"{longest!r} is longer than the {width} bytes that a row holds")
    return np.frombuffer(b"".join(text.encode().ljust(width, b"\0") for text in texts), np.uint8).reshape(-1, width)


def digest(x: np.ndarray) -> bytes:
    """sha256 of dtype, shape and bytes, as safetensors spells them."""
    kind = {"float32": "F32", "float64": "F64"}[str(x.dtype)]
    return hashlib.sha256(f"{kind}:{'x'.join(map(str, x.shape))}:".encode() + x.tobytes()).digest()


def weights(reference: Reference, at: At) -> Trace:
    """Name and digest of every parameter."""
    found = sorted(reference.model.state_dict().items())
    digests = b"".join(digest(to_numpy(x)) for _, x in found)
    return {"names": rows([n for n, _ in found], 96), "digests": np.frombuffer(digests, np.uint8).reshape(-1, 32)}


def convert_ar(reference: Reference, at: At) -> Trace:
    """What a Llama becomes; only a Llama's checkpoint has this stage."""
    config = dataclasses.replace(configure(reference.raw, at["as"]), wide=reference.model.config.wide)
    taken = transferred(reference.source, config)
    new = [name for name in MetaDiffusion(config).state_dict() if any(part in name for part in NEW)]
    names = sorted([*taken, *new])
    digests = [
        digest(to_numpy(taken[name][: config.vocab_size] if name == "embed_tokens.weight" else taken[name]))
        if name in taken
        else bytes(32)
        for name in names
    ]
    fields = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name != "wide"}
    return {
        "names": rows(names, 96),
        "digests": np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32),
        "config": np.frombuffer(json.dumps(fields, sort_keys=True).encode(), np.uint8),
        "mask_row": to_numpy(taken["embed_tokens.weight"][-1]),
    }


def _block(reference: Reference, at: At) -> Block:
    return reference.model.layers[at["layer"]]


def _positions(tokens: int) -> torch.Tensor:
    return torch.arange(tokens)[None]


def padded(padding: np.ndarray) -> torch.Tensor | None:
    """Padding as the model takes it; size 0 stands for none."""
    return to_torch(padding) if padding.size else None


def _mask(reference: Reference, padding: np.ndarray) -> torch.Tensor | None:
    return additive(padded(padding), reference.model.norm.weight.dtype, reference.model.config.wide)


@torch.no_grad()
def timestep_embedding(reference: Reference, at: At, *, t: np.ndarray) -> Trace:
    """[B, W]."""
    return {"emb": to_numpy(reference.model.timestep_emb(to_torch(t)))}


@torch.no_grad()
def rmsnorm(reference: Reference, at: At, *, x: np.ndarray) -> Trace:
    """[B, T, D]; which norm, the occurrence says."""
    if "layer" not in at:
        return {"h": to_numpy(reference.model.norm(to_torch(x)))}
    block = _block(reference, at)
    return {"h": to_numpy((block.input_layernorm if at.get("input") else block.post_attention_layernorm)(to_torch(x)))}


@torch.no_grad()
def rope(reference: Reference, at: At, *, x: np.ndarray) -> Trace:
    """Rotated queries or keys [B, H, T, d]."""
    return {"x": to_numpy(_block(reference, at).self_attn.rotary_emb(to_torch(x), _positions(x.shape[2])))}


@torch.no_grad()
def attention(reference: Reference, at: At, *, x: np.ndarray, padding: np.ndarray) -> Trace:
    """[B, T, D]."""
    h = _block(reference, at).self_attn(to_torch(x), _mask(reference, padding), _positions(x.shape[1]))
    return {"h": to_numpy(h)}


@torch.no_grad()
def mlp(reference: Reference, at: At, *, x: np.ndarray) -> Trace:
    """[B, T, D]."""
    return {"h": to_numpy(_block(reference, at).mlp(to_torch(x)))}


@torch.no_grad()
def block(reference: Reference, at: At, *, h: np.ndarray, emb: np.ndarray, padding: np.ndarray) -> Trace:
    """[B, T, D]."""
    mask = _mask(reference, padding)
    return {"h": to_numpy(_block(reference, at)(to_torch(h), to_torch(emb), mask, _positions(h.shape[1])))}


@torch.no_grad()
def forward(reference: Reference, at: At, *, ids: np.ndarray, t: np.ndarray, padding: np.ndarray) -> Trace:
    """Logits [B, T, V] under their three gates."""
    return judged(to_numpy(reference.model(to_torch(ids), to_torch(t), padded(padding))))


def judged(logits: np.ndarray) -> Trace:
    """Logits as they are, as a distribution, and as a choice."""
    return {"logits": logits, "distribution": logits, "best": logits.argmax(-1).astype(np.int32)}


def corrupt(
    reference: Reference,
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
    real = to_torch(padding) if padding.size else torch.ones(ids.shape, dtype=torch.bool)
    t, masked, noisy = diffusion.corrupt(
        to_torch(ids),
        real,
        to_torch(u),
        to_torch(uniform),
        float(low),
        float(high),
        reference.model.config.mask_token_id,
    )
    return {"t": to_numpy(t), "masked": to_numpy(masked), "noisy": to_numpy(noisy)}


@torch.no_grad()
def loss(
    reference: Reference, at: At, *, logits: np.ndarray, labels: np.ndarray, masked: np.ndarray, t: np.ndarray
) -> Trace:
    """Both losses and the number of positions in them, 0-d."""
    given, pad = (to_torch(logits), to_torch(labels), to_torch(masked)), reference.model.config.pad_token_id
    flat, count = diffusion.flat_loss(*given, pad)
    elbo = diffusion.elbo_loss(*given, to_torch(t), pad)
    return {"flat": to_numpy(flat), "elbo": to_numpy(elbo), "count": np.array(count, np.int32)}


def grad(
    reference: Reference,
    at: At,
    *,
    noisy: np.ndarray,
    labels: np.ndarray,
    masked: np.ndarray,
    t: np.ndarray,
    padding: np.ndarray,
) -> Trace:
    """The flat loss' gradient of every parameter, the dots of its name as hyphens."""
    model = reference.model
    logits = model(to_torch(noisy), to_torch(t), padded(padding))
    value, _ = diffusion.flat_loss(logits, to_torch(labels), to_torch(masked), model.config.pad_token_id)
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(value, parameters)
    matrices = (to_numpy(x).reshape(-1, x.shape[-1]) for x in found)
    return {f"grads.{name.replace('.', '-')}": x for name, x in zip(names, matrices, strict=True)}


@torch.no_grad()
def unmask_step(
    reference: Reference, at: At, *, logits: np.ndarray, ids: np.ndarray, confidence: np.ndarray, count: np.ndarray
) -> Trace:
    """The best tokens and their probabilities; and, decided on the given confidence, the next ids."""
    schedule = at["schedule"]
    best, own = diffusion.predict(to_torch(logits), [] if schedule == "seed" else diffusion.never(reference.model))
    choose = diffusion.reveal_seed if schedule == "seed" else diffusion.reveal
    given = (to_torch(ids), best, to_torch(confidence), to_torch(count))
    after = choose(*given, reference.model.config.mask_token_id)
    return {"predicted": to_numpy(best), "confidence": to_numpy(own), "ids": to_numpy(after)}


def generate(reference: Reference, at: At, *, start: np.ndarray, steps: np.ndarray) -> Trace:
    """Final ids [B, T], and how many were revealed by each step [n, B]."""
    counts: list[np.ndarray] = []
    final = diffusion.generate(
        reference.model,
        to_torch(start),
        int(steps),
        at["schedule"],
        lambda _step, _logits, _before, count, _after: counts.append(to_numpy(count)),
    )
    return {"ids": to_numpy(final), "counts": np.stack(counts)}
