"""What happens between picture files and a prompt that shows them, reported border by border."""

import io
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from port.crossed_borders import Crossings
from port.observe import Observer

from . import cuts, image, picture, splice
from .borders import text_bytes, to_mlx
from .embed import Embedding
from .model import DiffusionGemma
from .patches import PatchEmbedding
from .sight import Sight
from .tokens import tokens_of
from .vision import VisionTower
from .vision_layer import VisionLayer


def prepare(
    model: DiffusionGemma, plan: dict[str, Any], emit: Crossings
) -> tuple[np.ndarray, list[mx.array], mx.array]:
    """Preprocess a plan's pictures and splice them into its question: ids [1, T], pixels, types [1, T]."""
    prepared, counts = [], []
    for i, given in enumerate(plan["pictures"]):
        outs = cuts.image_preprocess(model, {}, **given)
        emit("image_preprocess", f"image={i}", given, outs)
        prepared.append(image.Pixels(outs["pixels"]))
        counts.append(outs["soft_tokens"])
    ins = {"text": text_bytes(plan["question"]), "soft_tokens": np.array(counts, np.int32)}
    spliced = cuts.image_splice(model, {}, **ins)
    emit("image_splice", "prompt", ins, spliced)
    return spliced["ids"][None], image.batch(prepared), to_mlx(spliced["types"][None])


def seen(model: DiffusionGemma, planned: dict[str, Any]) -> Sight:
    """A planned generation's pictures and prompt, ready for the encoder."""
    prepared = [
        image.prepare(picture.read(io.BytesIO(one["file"].tobytes()), "the drawn file"), int(one["budget"]))
        for one in planned["pictures"]
    ]
    counts = [one.soft_tokens for one in prepared]
    ids, types = splice.prompt(tokens_of(model.weights.directory), model.config, planned["prompt"], counts)
    return Sight(mx.array(ids)[None], mx.array(types)[None], model.look(image.batch(prepared)))


def observers(model: DiffusionGemma, emit: Crossings, prefix: Callable[[], str]) -> dict[tuple[type, str], Observer]:
    """Who watches what of the tower; pictures are looked at one after the other, and counted as they come."""
    layers = {} if model.vision_tower is None else {id(layer): i for i, layer in enumerate(model.vision_tower.layers)}
    seen = {"pictures": 0}

    def here() -> str:
        return f"image={seen['pictures'] - 1}"

    def patches(_this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        result = call()
        seen["pictures"] += 1
        emit("patch_embed", here(), {"pixels": args[0]}, {"h": result})
        return result

    def layer(this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        result = call()
        h, grid, _ = args
        ins = {"h": h, "grid": np.array([grid.rows, grid.columns], np.int32)}
        emit("vision_layer", f"{here()}/layer={layers[id(this)]}", ins, {"h": result})
        return result

    def tower(_this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        result = call()
        emit("vision_tower", here(), {"pixels": args[0]}, {"features": result})
        return result

    def project(_this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        result = call()
        emit("vision_project", prefix(), {"features": args[0]}, {"features": result})
        return result

    def merged(_this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        result = call()
        emit("merge_vision", prefix(), {"ids": args[0], "features": args[1]}, {"h": result})
        return result

    return {
        (PatchEmbedding, "__call__"): patches,
        (VisionLayer, "__call__"): layer,
        (VisionTower, "features"): tower,
        (VisionTower, "project"): project,
        (Embedding, "merged"): merged,
    }
