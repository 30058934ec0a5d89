"""The port's stages, one callable each: numpy in, numpy out, parameters named as in the table of stages.

Legend: B batch, T prompt tokens, C canvas tokens, D hidden, H heads, G key-value heads, S keys, d head width, N tokens
of a batch laid flat, E experts, K experts a token, V vocabulary.
"""

# ruff: noqa: ARG001 -- every cut takes `at`, whether or not its stage looks at it.

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from port.crossed_borders import Trace, batched, computed

from . import config as configs
from . import model as models
from .borders import (
    by_id,
    cache_gives,
    digest,
    flatten,
    mask_out,
    optional,
    restore,
    restore_all,
    rows,
    shown,
    text_bytes,
    to_mlx,
    to_numpy,
    written_out,
)
from .canvas_cuts import (  # noqa: F401 -- the engine's cuts are this module's too, in a file of their own
    accept_confidence,
    accept_entropy,
    denoise_canvas,
    generate,
    generate_image,
    renoise,
    sampler_step,
    stopping,
    temperature,
    token_confidence,
    token_entropy,
)  # fmt: skip
from .conditioning import confident_probabilities, entropic_probabilities, soft_from_logits, soft_from_table
from .layers import Layer
from .masks import decoder_mask, encoder_mask, visible
from .model import DiffusionGemma
from .tokens import tokens_of
from .vision_cuts import (
    image_encoder,
    image_masks,
    image_preprocess,
    image_splice,
    merge_vision,
    patch_embed,
    vision_layer,
    vision_project,
    vision_tower,
)

At = Mapping[str, Any]

__all__ = [
    "image_encoder", "image_masks", "image_preprocess", "image_splice", "merge_vision", "patch_embed", "vision_layer",
    "vision_project", "vision_tower",
]  # fmt: skip


def load(checkpoint: Path, compute: str) -> DiffusionGemma:
    """Open a checkpoint directory for "bfloat16" or "float32", refusing values that are no numbers."""
    model = models.load(Path(checkpoint), compute)
    model.weights.verify()
    return model


def _layer(model: DiffusionGemma, at: At) -> Layer:
    return model.layers[at["layer"]]


def _windows(model: DiffusionGemma) -> list[int | None]:
    return [layer.self_attn.window for layer in model.layers]


def config(model: DiffusionGemma, at: At) -> Trace:
    """Every field after defaults and the quantization map: names uint8 [n, 128], values uint8 [n, 32]."""
    parsed = dataclasses.asdict(configs.read(model.weights.directory))
    leaves = flatten({k: v for k, v in parsed.items() if k != "quantization" or v is not None})
    names = sorted(leaves)
    return {"names": rows(names, 128), "values": rows([leaves[name] for name in names], 32)}


def weights(model: DiffusionGemma, at: At) -> Trace:
    """Name and digest of every tensor as the model reads it: names uint8 [n, 96], digests uint8 [n, 32]."""
    params = sorted(model.weights.params.items())
    digests = b"".join(
        digest(model.weights.params[name].dtype, x)
        for some in batched((name, param.stored()) for name, param in params)
        for name, x in computed(some).items()
    )
    names = rows([name for name, _ in params], 96)
    return {"names": names, "digests": np.frombuffer(digests, np.uint8).reshape(len(params), 32)}


def tokenize(model: DiffusionGemma, at: At, *, text: np.ndarray) -> Trace:
    """Ids of a text, beginning token first."""
    return {"ids": np.array(tokens_of(model.weights.directory).encode(text.tobytes().decode("utf-8")), np.int32)}


def chat_template(model: DiffusionGemma, at: At, *, messages: np.ndarray) -> Trace:
    """A conversation as the prompt that asks for the model's turn."""
    return {"text": text_bytes(tokens_of(model.weights.directory).chat(json.loads(messages.tobytes())))}


def embed(model: DiffusionGemma, at: At, *, ids: np.ndarray) -> Trace:
    """Scaled embeddings [B, T, D] of prompt ids (encoder) or canvas ids."""
    embedding = model.embed_tokens
    return {"h": to_numpy((embedding.prompt if at.get("encoder") else embedding.canvas)(to_mlx(ids)))}


def rope(model: DiffusionGemma, at: At, *, x: np.ndarray, offset: np.ndarray) -> Trace:
    """Rotated queries or keys [B, H, T, d]."""
    return {"x": to_numpy(_layer(model, at).self_attn.rope(to_mlx(x), int(offset)))}


def attention(
    model: DiffusionGemma,
    at: At,
    *,
    x: np.ndarray,
    mask: np.ndarray,
    mask_kind: np.ndarray,
    past_keys: np.ndarray,
    past_values: np.ndarray,
    cursor: np.ndarray,
) -> Trace:
    """The attention branch [B, T, D]."""
    attn, form = _layer(model, at).self_attn, mask_out(mask, mask_kind)
    cache = restore(attn.window, past_keys, past_values, cursor, ordered=not at.get("encoder"))
    if at.get("encoder"):
        return {"h": to_numpy(attn.encode(to_mlx(x), form, cache))}
    return {"h": to_numpy(attn.decode(to_mlx(x), form, cache.seen(), int(cursor[0])))}


def mlp(model: DiffusionGemma, at: At, *, x: np.ndarray) -> Trace:
    """The dense feed-forward branch [B, T, D]."""
    return {"h": to_numpy(_layer(model, at).mlp(to_mlx(x)))}


def router(model: DiffusionGemma, at: At, *, h: np.ndarray) -> Trace:
    """Scores of all experts [N, E]."""
    return {"scores": to_numpy(_layer(model, at).router.scores(to_mlx(h)))}


def select_experts(model: DiffusionGemma, at: At, *, scores: np.ndarray) -> Trace:
    """The chosen experts and their weights [N, K], by ascending id."""
    experts, chances = _layer(model, at).router.select(to_mlx(scores))
    return by_id(computed({"experts": experts, "weights": chances}))


def moe(model: DiffusionGemma, at: At, *, x: np.ndarray, experts: np.ndarray, weights: np.ndarray) -> Trace:
    """The weighted sum of the chosen experts [N, D]."""
    chosen = to_mlx(experts.astype(np.uint32))
    return {"h": to_numpy(_layer(model, at).experts(to_mlx(x), chosen, to_mlx(weights)))}


def layer(
    model: DiffusionGemma,
    at: At,
    *,
    h: np.ndarray,
    mask: np.ndarray,
    mask_kind: np.ndarray,
    past_keys: np.ndarray,
    past_values: np.ndarray,
    cursor: np.ndarray,
) -> Trace:
    """One whole layer [B, T, D]; encoder passes end with the encoder's scalar."""
    block, form = _layer(model, at), mask_out(mask, mask_kind)
    cache = restore(block.self_attn.window, past_keys, past_values, cursor, ordered=not at.get("encoder"))
    if at.get("encoder"):
        return {"h": to_numpy(block.encode(to_mlx(h), form, cache))}
    return {"h": to_numpy(block.decode(to_mlx(h), form, cache.seen(), int(cursor[0])))}


def encoder_masks(
    model: DiffusionGemma, at: At, *, tokens: np.ndarray, offset: np.ndarray, padding: np.ndarray
) -> Trace:
    """Both kinds of encoder mask, booleans [B, 1, T, S]."""
    queries, before = int(tokens), int(offset)
    gives = {}
    for name, window in (("full", None), ("sliding", model.config.text_config.sliding_window)):
        mask = encoder_mask(queries, before, window, optional(padding))
        gives[name] = written_out(mask, queries, visible(queries, before, window))
    return gives


def kv_cache(
    model: DiffusionGemma,
    at: At,
    *,
    past_keys: np.ndarray,
    past_values: np.ndarray,
    cursor: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
) -> Trace:
    """One update: what attention gets, what a canvas will see, and where the cache stands."""
    window = _layer(model, at).self_attn.window
    cache = restore(window, past_keys, past_values, cursor, ordered=False)
    return computed(cache_gives(cache, *cache.update(to_mlx(keys), to_mlx(values))))


def encoder(
    model: DiffusionGemma,
    at: At,
    *,
    ids: np.ndarray,
    padding: np.ndarray,
    past_keys: Trace,
    past_values: Trace,
    cursors: np.ndarray,
) -> Trace:
    """A whole encoder pass: hidden states [B, T, D] after the final norm, and what a canvas then sees of each layer."""
    caches = restore_all(_windows(model), past_keys, past_values, cursors, ordered=False)
    h = model.encode(to_mlx(ids), caches, optional(padding))
    return computed({"h": h, **shown(caches)})


def decoder_masks(
    model: DiffusionGemma, at: At, *, tokens: np.ndarray, lengths: np.ndarray, offset: np.ndarray, padding: np.ndarray
) -> Trace:
    """Both kinds of decoder mask, booleans [B, 1, C, S + C]."""
    gives, canvas = {}, int(tokens)
    windows = (None, model.config.text_config.sliding_window)
    for name, window, cached in zip(("full", "sliding"), windows, lengths, strict=True):
        mask = decoder_mask(canvas, int(cached), int(offset), window, optional(padding))
        gives[name] = written_out(mask, canvas, int(cached) + canvas)
    return gives


def soft_embeddings(model: DiffusionGemma, at: At, *, logits: np.ndarray) -> Trace:
    """The average embedding [B, C, D] under logits, by the formula that the occurrence names."""
    embedding, given = model.embed_tokens, to_mlx(logits)
    if at["from"] == "logits":
        return {"soft": to_numpy(soft_from_logits(embedding, given, model.norm.dtype))}
    formula = {"confidence": confident_probabilities, "entropy": entropic_probabilities}[at["from"]]
    return {"soft": to_numpy(soft_from_table(formula(given), embedding.table.dense(), embedding.scale))}


def self_conditioning(model: DiffusionGemma, at: At, *, embeds: np.ndarray, signal: np.ndarray) -> Trace:
    """Canvas embeddings with the signal mixed in [B, C, D]."""
    return {"h": to_numpy(model.self_conditioning(to_mlx(embeds), to_mlx(signal)))}


def decoder(
    model: DiffusionGemma,
    at: At,
    *,
    ids: np.ndarray,
    signal: np.ndarray,
    padding: np.ndarray,
    past_keys: Trace,
    past_values: Trace,
    cursors: np.ndarray,
) -> Trace:
    """A whole canvas pass: hidden states [B, C, D] after the final norm, and the caches, which it only reads."""
    caches = restore_all(_windows(model), past_keys, past_values, cursors, ordered=True)
    h = model.decode(to_mlx(ids), caches, to_mlx(signal), optional(padding))
    return computed({"h": h, **shown(caches)})


def logits(model: DiffusionGemma, at: At, *, h: np.ndarray) -> Trace:
    """Capped logits, float32 [B, C, V]."""
    return {"logits": to_numpy(model.embed_tokens.head(to_mlx(h)))}
