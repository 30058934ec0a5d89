"""The reference's stages of seeing, one callable each: its own modules and functions, fed from outside.

B batch, T tokens, D hidden, W the tower's hidden size, P patches of one picture, N soft tokens.
"""

import importlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np
from optiq.vlm.gemma4 import image_processing
from PIL import Image

from .reference import Reference
from .tensors import to_mlx, to_numpy
from .watch import Watch

# The package's attribute of this name is its function `generate`.
door = importlib.import_module("optiq.vlm.diffusion_gemma.generate")

Trace = dict[str, np.ndarray]
At = Mapping[str, Any]


@contextmanager
def answering(module: ModuleType, name: str, function: Any) -> Iterator[None]:
    """Let `module.name` be `function` inside the block."""
    own = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, own)


def image_preprocess(reference: Reference, at: At, *, file: np.ndarray, budget: np.ndarray) -> Trace:
    """A picture file as pixels float32 [3, y, x], and the soft tokens it takes."""
    with warnings.catch_warnings(), Image.open(io.BytesIO(file.tobytes())) as picture:
        warnings.simplefilter("ignore")  # Pillow's, of palettes whose transparency is dropped
        pixels, soft = image_processing.preprocess_images(picture, max_soft_tokens=int(budget))
    return {"pixels": np.ascontiguousarray(pixels[0]), "soft_tokens": np.array(soft[0], np.int32)}


def image_splice(reference: Reference, at: At, *, text: np.ndarray, soft_tokens: np.ndarray) -> Trace:
    """Ids and token types [T] of a user's turn with pictures of so many soft tokens."""
    soft = [int(n) for n in soft_tokens]

    def prepared(images: Sequence[Any]) -> tuple[list[np.ndarray], list[int]]:
        return [np.zeros((3, 1, 1), np.float32) for _ in images], soft

    with answering(image_processing, "preprocess_images", prepared):
        ids, _, types = door._build_image_inputs(  # noqa: SLF001
            reference.model, reference.tokenizer, text.tobytes().decode(), [None] * len(soft)
        )
    return {"ids": to_numpy(ids)[0], "types": to_numpy(types)[0]}


def patch_embed(reference: Reference, at: At, *, pixels: np.ndarray) -> Trace:
    """Patch embeddings [B, P, W], places added."""
    tower = _tower(reference)
    _, _, height, width = pixels.shape
    places, padding, count = tower._patch_positions_single(height, width)  # noqa: SLF001
    h = tower.patch_embedder(_shown(pixels), mx.array(places[None, :count]), mx.array(padding[None, :count]))
    return {"h": to_numpy(h)}


def vision_layer(reference: Reference, at: At, *, h: np.ndarray, grid: np.ndarray) -> Trace:
    """One layer of the tower [B, P, W]; the padding that the reference puts behind the patches is cut off again."""
    tower, caught = _tower(reference), []
    rows, columns = (int(n) for n in grid)

    def catch(padded: mx.array, places: mx.array, mask: mx.array) -> mx.array:
        caught.append((padded, places, mask))
        return padded

    watch = Watch().instead(tower.patch_embedder, "__call__", lambda *_: to_mlx(h))
    with watch.instead(tower.encoder, "__call__", catch):
        tower(mx.zeros((h.shape[0], 3, rows * tower.patch_size, columns * tower.patch_size)))
    return {"h": to_numpy(tower.encoder.layers[at["layer"]](*caught[0])[:, : h.shape[1]])}


def vision_tower(reference: Reference, at: At, *, pixels: np.ndarray) -> Trace:
    """Soft tokens of one picture [B, N, W]: embedded, through all layers, pooled, standardized."""
    return {"features": to_numpy(_tower(reference)(_shown(pixels)))}


def vision_project(reference: Reference, at: At, *, features: np.ndarray) -> Trace:
    """Soft tokens in the language model's width [B, N, D]."""
    return {"features": to_numpy(reference.model.model.encoder.embed_vision(to_mlx(features)))}


def merge_vision(reference: Reference, at: At, *, ids: np.ndarray, features: np.ndarray) -> Trace:
    """Embeddings of a prompt [B, T, D] with soft tokens in their places."""
    encoder = reference.model.model.encoder
    with seeing(encoder, features):
        return {"h": to_numpy(encoder._embed_inputs(to_mlx(ids), pixel_values=ABSENT))}  # noqa: SLF001


ABSENT = "pixels that nobody looks at"


def seeing(encoder: Any, features: np.ndarray) -> Watch:
    """The encoder with its eyes answered: whatever pixels it is given, these are the soft tokens."""
    return Watch().instead(encoder, "get_image_features", lambda _pixels: to_mlx(features))


def _shown(pixels: np.ndarray) -> mx.array:
    """Pixels as the door hands them over: bfloat16 in a wide replay too, as centring them in it is no rounding."""
    return to_mlx(pixels).astype(mx.bfloat16)


def _tower(reference: Reference) -> Any:
    return reference.model.model.encoder.vision_tower
