"""The reference's stages, one callable each: its own modules and functions, fed from outside.

B batch, T tokens, C canvas, D hidden, H heads, G key-value heads, S cached keys, N = B*T, E experts, K experts a token,
V vocabulary.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from optiq.vlm._mlxvlm.generate import diffusion as engine

from .canvas_cuts import (
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
)
from .facts import chat_template, config, tokenize, weights
from .mask_cuts import canvas_padding, decoder_masks, encoder_masks, encoder_masks_by_kind, image_masks
from .reference import OracleError, Reference, load, widen
from .state import mask_out, revive, visible
from .tensors import to_mlx, to_numpy
from .vision_cuts import (
    ABSENT,
    image_preprocess,
    image_splice,
    merge_vision,
    patch_embed,
    seeing,
    vision_layer,
    vision_project,
    vision_tower,
)
from .watch import Watch

Trace = dict[str, np.ndarray]
At = Mapping[str, Any]

__all__ = [
    "OracleError",
    "accept_confidence",
    "accept_entropy",
    "chat_template",
    "config",
    "decoder_masks",
    "denoise_canvas",
    "encoder_masks",
    "encoder_masks_by_kind",
    "generate",
    "generate_image",
    "image_masks",
    "image_preprocess",
    "image_splice",
    "load",
    "load_wide",
    "merge_vision",
    "patch_embed",
    "renoise",
    "sampler_step",
    "stopping",
    "temperature",
    "token_confidence",
    "token_entropy",
    "tokenize",
    "vision_layer",
    "vision_project",
    "vision_tower",
    "weights",
]


def load_wide(checkpoint: Path, compute: str, kind: str) -> Reference:
    """The reference dequantized to `kind` (float64 or float32): what its own rounding is measured against."""
    return widen(checkpoint, compute, {"float64": mx.float64, "float32": mx.float32}[kind])


def count(value: int) -> np.ndarray:
    """A 0-d int32."""
    return np.array(value, np.int32)


def embed(reference: Reference, at: At, *, ids: np.ndarray) -> Trace:
    """Scaled embeddings of prompt ids (encoder) or of canvas ids (decoder)."""
    if at.get("encoder"):
        return {"h": to_numpy(reference.model.model.encoder._embed_inputs(to_mlx(ids)))}  # noqa: SLF001
    embeds, _ = _into_self_conditioning(reference, ids, None)
    return {"h": embeds}


def _into_self_conditioning(reference: Reference, ids: np.ndarray, logits: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """(embeds, signal) that the reference's canvas embedding hands to its self-conditioning block."""
    decoder = reference.model.model.decoder
    caught: list[np.ndarray] = []

    def catch(embeds: mx.array, signal: mx.array) -> mx.array:
        caught.extend((to_numpy(embeds), to_numpy(signal)))
        return embeds

    with Watch().instead(decoder.self_conditioning, "__call__", catch):
        decoder._embed_canvas(to_mlx(ids), None if logits is None else to_mlx(logits))  # noqa: SLF001
    return tuple(caught)


def rope(reference: Reference, at: At, *, x: np.ndarray, offset: np.ndarray) -> Trace:
    """Rotated queries or keys [B, H, T, d]."""
    return {"x": to_numpy(_layer(reference, at).self_attn.rope(to_mlx(x), offset=int(offset)))}


def attention(
    reference: Reference,
    at: At,
    *,
    x: np.ndarray,
    mask: np.ndarray,
    mask_kind: np.ndarray,
    past_keys: np.ndarray,
    past_values: np.ndarray,
    cursor: np.ndarray,
) -> Trace:
    """A layer's attention branch [B, T, D], its cache rebuilt as it was."""
    layer, decoder = _layer(reference, at), not at.get("encoder")
    cache = revive(layer, past_keys, past_values, cursor, decoder=decoder)
    form = mask_out(mask, mask_kind)
    return {"h": to_numpy(layer.self_attn(to_mlx(x), form, cache, decoder=decoder, offset=_offset(at, cursor)))}


def mlp(reference: Reference, at: At, *, x: np.ndarray) -> Trace:
    """The dense feed-forward branch."""
    return {"h": to_numpy(_layer(reference, at).mlp(to_mlx(x)))}


def router(reference: Reference, at: At, *, h: np.ndarray) -> Trace:
    """Expert scores [N, E], before the choice."""
    chooser = _layer(reference, at).router
    caught: dict[str, np.ndarray] = {}
    with Watch().on(chooser.proj, after=lambda _a, _k, result, _t: caught.update(scores=to_numpy(result))):
        chooser(to_mlx(h))
    return caught


def select_experts(reference: Reference, at: At, *, scores: np.ndarray) -> Trace:
    """The chosen experts in ascending order [N, K] and their weights, decided on given scores."""
    chooser = _layer(reference, at).router
    scores_NE = to_mlx(scores)
    with Watch().instead(chooser.proj, "__call__", lambda _x: scores_NE):
        return by_expert(*chooser(mx.zeros((scores.shape[0], chooser.scale.shape[0]), scores_NE.dtype)))


def by_expert(indices: mx.array, weights_NK: mx.array) -> Trace:
    """Canonical form of a choice: a set has no order, so ids ascend and weights follow them."""
    experts, joined = to_numpy(indices).astype(np.int32), to_numpy(weights_NK)
    order = np.argsort(experts, axis=-1)
    return {"experts": np.take_along_axis(experts, order, -1), "weights": np.take_along_axis(joined, order, -1)}


def moe(reference: Reference, at: At, *, x: np.ndarray, experts: np.ndarray, weights: np.ndarray) -> Trace:
    """The weighted sum of the chosen experts' outputs [N, D]."""
    chosen = to_mlx(experts.astype(np.uint32))
    return {"h": to_numpy(_layer(reference, at).experts(to_mlx(x), chosen, to_mlx(weights)))}


def layer(
    reference: Reference,
    at: At,
    *,
    h: np.ndarray,
    mask: np.ndarray,
    mask_kind: np.ndarray,
    past_keys: np.ndarray,
    past_values: np.ndarray,
    cursor: np.ndarray,
) -> Trace:
    """One whole layer [B, T, D]; encoder passes scale by the encoder's own layer scalar."""
    block, decoder = _layer(reference, at), not at.get("encoder")
    cache = revive(block, past_keys, past_values, cursor, decoder=decoder)
    scalars = reference.model.model.encoder.language_model.layers
    scalar = None if decoder else scalars[at["layer"]].layer_scalar
    form = mask_out(mask, mask_kind)
    result = block(to_mlx(h), form, cache, decoder=decoder, offset=_offset(at, cursor), layer_scalar=scalar)
    return {"h": to_numpy(result)}


def kv_cache(
    reference: Reference,
    at: At,
    *,
    past_keys: np.ndarray,
    past_values: np.ndarray,
    cursor: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
) -> Trace:
    """One update of a layer's cache: what attention gets, what the decoder will see, and the new cursor."""
    cache = revive(_layer(reference, at), past_keys, past_values, cursor, decoder=False)
    return cache_gives(cache, *cache.update_and_fetch(to_mlx(keys), to_mlx(values)))


def cache_gives(cache: Any, keys: mx.array, values: mx.array) -> Trace:
    """The outputs of `kv_cache`, read off an updated cache."""
    seen_keys, seen_values, cursor = visible(cache)
    return {
        "keys": to_numpy(keys),
        "values": to_numpy(values),
        "seen_keys": seen_keys,
        "seen_values": seen_values,
        "cursor": cursor,
    }


def seen(caches: Any) -> Trace:
    """Decoder-visible keys.* and values.* of all layers."""
    trace: Trace = {}
    for i, cache in enumerate(caches):
        trace[f"keys.{i}"], trace[f"values.{i}"], _ = visible(cache)
    return trace


def encoder(
    reference: Reference,
    at: At,
    *,
    ids: np.ndarray,
    padding: np.ndarray,
    past_keys: Trace,
    past_values: Trace,
    cursors: np.ndarray,
) -> Trace:
    """A whole encoder pass: hidden states after the final norm, and every layer's cache afterwards."""
    caches = _caches(reference, past_keys, past_values, cursors, decoder=False)
    attend = to_mlx(padding) if padding.size else None
    h, caches = reference.model.model.encoder(to_mlx(ids), attention_mask=attend, cache=caches)
    return {"h": to_numpy(h), **seen(caches)}


def image_encoder(
    reference: Reference,
    at: At,
    *,
    ids: np.ndarray,
    types: np.ndarray,
    features: np.ndarray,
    padding: np.ndarray,
    past_keys: Trace,
    past_values: Trace,
    cursors: np.ndarray,
) -> Trace:
    """A whole encoder pass over a prompt with pictures, their soft tokens given."""
    caches = _caches(reference, past_keys, past_values, cursors, decoder=False)
    attend, see = to_mlx(padding) if padding.size else None, reference.model.model.encoder
    with seeing(see, features):
        h, caches = see(
            to_mlx(ids), attention_mask=attend, cache=caches, pixel_values=ABSENT, mm_token_type_ids=to_mlx(types)
        )
    return {"h": to_numpy(h), **seen(caches)}


def soft_embeddings(reference: Reference, at: At, *, logits: np.ndarray) -> Trace:
    """Expected embeddings of a canvas [B, C, D] under its logits, by the formula that the occurrence names."""
    if at["from"] == "logits":
        _, signal = _into_self_conditioning(reference, np.zeros(logits.shape[:2], np.int32), logits)
        return {"soft": signal}
    return {"soft": to_numpy(engine_soft(reference.model.model.decoder, at["from"], to_mlx(logits)))}


def engine_soft(decoder_model: Any, formula: str, logits: Any) -> mx.array:
    """The engine's soft embeddings: `confidence` by softmax, `entropy` by the exponential of log-probabilities."""
    table = engine._diffusion_soft_embedding_weight(decoder_model.embed_tokens)  # noqa: SLF001
    if formula == "confidence":
        return engine._diffusion_soft_embeddings(logits, table, decoder_model.embed_scale)  # noqa: SLF001
    _, soft = engine._diffusion_entropy_and_soft_embeddings(logits, table, decoder_model.embed_scale)  # noqa: SLF001
    return soft


def self_conditioning(reference: Reference, at: At, *, embeds: np.ndarray, signal: np.ndarray) -> Trace:
    """Canvas embeddings with the previous step's signal mixed in."""
    return {"h": to_numpy(reference.model.model.decoder.self_conditioning(to_mlx(embeds), to_mlx(signal)))}


def decoder(
    reference: Reference,
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
    caches = _caches(reference, past_keys, past_values, cursors, decoder=True)
    h = reference.model.model.decoder(
        to_mlx(ids),
        cache=caches,
        self_conditioning_embeddings=to_mlx(signal),
        decoder_attention_mask=canvas_padding(padding, ids.shape[1]),
    )
    return {"h": to_numpy(h), **seen(caches)}


def logits(reference: Reference, at: At, *, h: np.ndarray) -> Trace:
    """Softcapped float32 logits [B, C, V] of given hidden states, through the model's own call."""
    model = reference.model
    with Watch().instead(model.model, "__call__", lambda **_: (to_mlx(h), None)):
        return {"logits": to_numpy(model(canvas_ids=mx.zeros(h.shape[:2], mx.int32)).logits)}


def _layer(reference: Reference, at: At) -> Any:
    return reference.model.layers[at["layer"]]


def _offset(at: At, cursor: np.ndarray) -> int | None:
    return None if at.get("encoder") else int(cursor[0])


def _caches(reference: Reference, keys: Trace, values: Trace, cursors: np.ndarray, *, decoder: bool) -> list[Any]:
    return [
        revive(block, keys[str(i)], values[str(i)], cursors[i], decoder=decoder)
        for i, block in enumerate(reference.model.layers)
    ]
