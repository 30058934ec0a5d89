"""The port's stages of seeing, one callable each: numpy in, numpy out, parameters named as in the table of stages.

Legend: B batch, T prompt tokens, D hidden, W the tower's hidden size, P patches of one picture, N soft tokens.
"""

# ruff: noqa: ARG001 -- every cut takes `at`, whether or not its stage looks at it.

import io
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np

from port.crossed_borders import Trace, computed

from . import image, picture, splice
from .aliases import Mask
from .borders import number, optional, restore_all, shown, to_mlx, to_numpy, written_out
from .masks import visible
from .model import DiffusionGemma
from .tokens import tokens_of
from .vision import VisionTower

At = Mapping[str, Any]


def _tower(model: DiffusionGemma) -> VisionTower:
    if model.vision_tower is None:
        raise ValueError("this checkpoint has no vision tower: nothing of it can be cut out")
    return model.vision_tower


def image_preprocess(model: DiffusionGemma, at: At, *, file: np.ndarray, budget: np.ndarray) -> Trace:
    """A picture file as pixels float32 [3, y, x], and the soft tokens it takes."""
    prepared = image.prepare(picture.read(io.BytesIO(file.tobytes()), "the recorded file"), int(budget))
    return {"pixels": np.ascontiguousarray(prepared.values), "soft_tokens": number(prepared.soft_tokens)}


def image_splice(model: DiffusionGemma, at: At, *, text: np.ndarray, soft_tokens: np.ndarray) -> Trace:
    """Ids and token types [T] of a user's turn with pictures of so many soft tokens."""
    tokens = tokens_of(model.weights.directory)
    ids, types = splice.prompt(tokens, model.config, text.tobytes().decode("utf-8"), [int(n) for n in soft_tokens])
    return {"ids": ids, "types": types}


def patch_embed(model: DiffusionGemma, at: At, *, pixels: np.ndarray) -> Trace:
    """Patch embeddings [B, P, W], places added."""
    tower = _tower(model)
    return {"h": to_numpy(tower.patch_embedder(to_mlx(pixels), tower.grid_of(to_mlx(pixels))))}


def vision_layer(model: DiffusionGemma, at: At, *, h: np.ndarray, grid: np.ndarray) -> Trace:
    """One layer of the tower [B, P, W]."""
    tower = _tower(model)
    places = tower.grid(*(int(n) for n in grid))
    return {"h": to_numpy(tower.layers[at["layer"]](to_mlx(h), places, tower.rope(places)))}


def vision_tower(model: DiffusionGemma, at: At, *, pixels: np.ndarray) -> Trace:
    """Soft tokens of one picture [B, N, W]."""
    return {"features": to_numpy(_tower(model).features(to_mlx(pixels)))}


def vision_project(model: DiffusionGemma, at: At, *, features: np.ndarray) -> Trace:
    """Soft tokens in the language model's width [B, N, D]."""
    return {"features": to_numpy(_tower(model).project(to_mlx(features)))}


def merge_vision(model: DiffusionGemma, at: At, *, ids: np.ndarray, features: np.ndarray) -> Trace:
    """Embeddings of a prompt [B, T, D] with soft tokens in their places."""
    return {"h": to_numpy(model.embed_tokens.merged(to_mlx(ids), to_mlx(features)))}


def image_masks(
    model: DiffusionGemma, at: At, *, tokens: np.ndarray, offset: np.ndarray, padding: np.ndarray, types: np.ndarray
) -> Trace:
    """Both kinds of encoder mask of a pass whose token types tell pictures, booleans [B, 1, T, S]."""
    masks = model.encoder_masks(int(tokens), int(offset), optional(padding), to_mlx(types))
    return masks_by_kind(masks, int(tokens), int(offset))


def masks_by_kind(masks: Mapping[int | None, Mask], tokens: int, offset: int) -> Trace:
    """An encoder pass' masks by the kind of layer, written out as booleans [B, 1, T, S]."""
    return {
        "full" if window is None else "sliding": written_out(mask, tokens, visible(tokens, offset, window))
        for window, mask in masks.items()
    }


def image_encoder(
    model: DiffusionGemma,
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
    windows = [layer.self_attn.window for layer in model.layers]
    caches = restore_all(windows, past_keys, past_values, cursors, ordered=False)
    h: mx.array = model.encode(to_mlx(ids), caches, optional(padding), to_mlx(features), to_mlx(types))
    return computed({"h": h, **shown(caches)})
