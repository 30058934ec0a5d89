"""Stages called directly, on inputs that no ordinary run happens to produce."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from . import cuts
from .reference import Reference
from .tensors import to_numpy

Trace = dict[str, np.ndarray]
Emit = Callable[[str, str, Trace, Trace], None]


def run(reference: Reference, plan: dict[str, Any], emit: Emit) -> None:
    """Execute a plan's direct calls of the experts and of the masks of pictures."""
    for direct in plan["direct_moe"]:
        _direct_moe(reference, direct, emit)
    for i, takes in enumerate(plan.get("direct_masks", ())):
        emit("image_masks", f"direct={i}", takes, cuts.image_masks(reference, {}, **takes))


def _direct_moe(reference: Reference, direct: dict[str, Any], emit: Emit) -> None:
    layer = reference.model.layers[direct["layer"]]
    dtype = layer.router.scale.dtype
    takes = {
        "x": to_numpy(mx.array(direct["x"]).astype(dtype)),
        "experts": direct["experts"],
        "weights": to_numpy(mx.array(direct["weights"]).astype(dtype)),
    }
    occurrence = f"direct/layer={direct['layer']}/assignments={direct['assignments']}"
    emit("moe", occurrence, takes, cuts.moe(reference, {"direct": True, "layer": direct["layer"]}, **takes))
