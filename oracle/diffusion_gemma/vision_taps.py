"""What happens between picture files and a prompt that shows them, reported border by border."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from . import cuts, facts
from .reference import Reference
from .tensors import to_mlx, to_numpy
from .watch import Watch

Trace = dict[str, np.ndarray]
Emit = Callable[[str, str, Trace, Trace], None]


def prepare(reference: Reference, plan: dict[str, Any], emit: Emit) -> tuple[np.ndarray, list[mx.array], mx.array]:
    """Preprocess a plan's pictures and splice them into its question: ids [1, T], pixels, types [1, T].

    The public door stacks pixels, which fails where sizes differ; the tower itself takes a list of them.
    """
    pixels, counts = [], []
    for i, picture in enumerate(plan["pictures"]):
        gives = cuts.image_preprocess(reference, {}, **picture)
        emit("image_preprocess", f"image={i}", picture, gives)
        pixels.append(mx.array(gives["pixels"]).astype(mx.bfloat16))
        counts.append(gives["soft_tokens"])
    takes = {"text": facts.as_bytes(plan["question"]), "soft_tokens": np.array(counts, np.int32)}
    spliced = cuts.image_splice(reference, {}, **takes)
    emit("image_splice", "prompt", takes, spliced)
    return spliced["ids"][None], pixels, to_mlx(spliced["types"][None])


def seen(reference: Reference, planned: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A planned generation's ids [T], types [T] and soft tokens [1, N, D]."""
    prepared = [cuts.image_preprocess(reference, {}, **one) for one in planned["pictures"]]
    counts = np.array([one["soft_tokens"] for one in prepared], np.int32)
    spliced = cuts.image_splice(reference, {}, text=facts.as_bytes(planned["prompt"]), soft_tokens=counts)
    encoder = reference.model.model.encoder
    features = [_looked_at(reference, one["pixels"]) for one in prepared]
    projected = encoder.embed_vision(mx.concatenate([to_mlx(one) for one in features], axis=1))
    return spliced["ids"], spliced["types"], to_numpy(projected)


_LOOKED_AT: dict[tuple[int, bytes], tuple[Reference, np.ndarray]] = {}


def _looked_at(reference: Reference, pixels: np.ndarray) -> np.ndarray:
    """The tower's soft tokens [1, N, W] of one picture; looked at once, as the tower computes all of its room."""
    key = id(reference), pixels.tobytes()
    if key not in _LOOKED_AT:
        tower = reference.model.model.encoder.vision_tower
        _LOOKED_AT[key] = reference, to_numpy(tower(mx.array(pixels).astype(mx.bfloat16)[None]))
    return _LOOKED_AT[key][1]


def watch_embedding(watch: Watch, passes: Any) -> None:
    """Report prompts as they become hidden states, with pictures or without; `passes` knows which pass it is."""

    def embedded(args: Any, kwargs: Any, result: Any, _token: Any) -> None:
        takes = {"ids": to_numpy(args[0])}
        if kwargs["pixel_values"] is None:
            passes.emit("embed", passes.prefix, takes, {"h": to_numpy(result)})
        else:
            passes.emit("merge_vision", passes.prefix, {**takes, "features": passes.features}, {"h": to_numpy(result)})

    def projected(args: Any, _kwargs: Any, result: Any, _token: Any) -> None:
        passes.features = to_numpy(result)
        passes.emit("vision_project", passes.prefix, {"features": to_numpy(args[0])}, {"features": passes.features})

    encoder = passes.encoder
    watch.on(encoder, "_embed_inputs", after=embedded)
    if encoder.vision_tower is not None:
        watch.on(encoder.embed_vision, after=projected)
        watch_tower(watch, encoder.vision_tower, passes.emit)


def watch_tower(watch: Watch, tower: Any, emit: Emit) -> None:
    """Report each picture's way through the tower; padding behind its patches is not reported."""
    picture: dict[str, Any] = {"number": -1}

    def before_patches(args: Any, _kwargs: Any) -> Trace:
        _, _, height, width = args[0].shape
        picture["number"] += 1
        picture["grid"] = np.array([height // tower.patch_size, width // tower.patch_size], np.int32)
        return {"pixels": to_numpy(args[0])}

    def embedded(_args: Any, _kwargs: Any, result: Any, takes: Trace) -> None:
        emit("patch_embed", f"image={picture['number']}", takes, {"h": to_numpy(result)})

    def before_layer(args: Any, _kwargs: Any) -> Trace:
        return {"h": real(args[0]), "grid": picture["grid"]}

    def real(h: mx.array) -> np.ndarray:
        return to_numpy(h[:, : int(np.prod(picture["grid"]))])

    def passed(number: int) -> Callable[..., None]:
        def after(_args: Any, _kwargs: Any, result: Any, takes: Trace) -> None:
            emit("vision_layer", f"image={picture['number']}/layer={number}", takes, {"h": real(result)})

        return after

    def seen(args: Any, _kwargs: Any, result: Any, _token: Any) -> None:
        if not isinstance(args[0], list):  # a list is looked at one by one, each of which is reported
            takes = {"pixels": to_numpy(args[0])}
            emit("vision_tower", f"image={picture['number']}", takes, {"features": to_numpy(result)})

    watch.on(tower.patch_embedder, before=before_patches, after=embedded)
    for number, layer in enumerate(tower.encoder.layers):
        watch.on(layer, before=before_layer, after=passed(number))
    watch.on(tower, after=seen)
