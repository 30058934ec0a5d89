"""Vision towers of any shape, without a checkpoint: the same made-up weights for the port and for the reference."""

import dataclasses
import hashlib
import math
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_unflatten
from optiq.vlm._mlxvlm.models.gemma4.config import VisionConfig as TheirConfig
from optiq.vlm._mlxvlm.models.gemma4.vision import VisionModel
from port_files import NANO

from port.diffusion_gemma import config as configs
from port.diffusion_gemma.config import VisionConfig
from port.diffusion_gemma.vision import VisionTower

ROOT = "made"
TOWER = f"{ROOT}.vision_tower."
CONFIG = configs.read(NANO)
# Attention neither uniform nor one-hot, and branches that do not drown the residual, as in a trained tower.
GAINS = {"q_norm": 0.4, "k_norm": 0.4, "layernorm": 0.6}
BOUNDS = {"input_min": -0.7, "input_max": 0.9, "output_min": -0.8, "output_max": 0.6}


class Made:
    """A place in a tree of names whose tensors are drawn when they are asked for; stands for a checkpoint's `Scope`."""

    def __init__(self, held: dict[str, mx.array], dtype: mx.Dtype, path: str = ROOT) -> None:
        self.held, self.dtype, self.path = held, dtype, path

    def __truediv__(self, name: str) -> "Made":
        return Made(self.held, self.dtype, f"{self.path}.{name}")

    def packing(self) -> None:
        return None

    def param(self, name: str, shape: tuple[int, ...], _dtype: str = "") -> Any:
        full = f"{self.path}.{name}"
        seed = int.from_bytes(hashlib.sha256(full.encode()).digest()[:8], "little")
        drawn = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
        if name in BOUNDS:
            drawn = np.float32(BOUNDS[name])
        elif len(shape) == 1:
            centre = next((gain for part, gain in GAINS.items() if part in full), 1.0)
            drawn = centre * (1 + 0.3 * drawn)
        else:
            drawn = drawn / math.sqrt(shape[-1])
        self.held[full] = mx.array(drawn).astype(mx.bfloat16).astype(self.dtype)
        return Plain(self.held[full])


@dataclasses.dataclass
class Plain:
    array: mx.array


def both(dtype: mx.Dtype = mx.bfloat16, **changed: Any) -> tuple[VisionTower, VisionModel]:
    """The port's tower and the reference's, alike in weights and in shape: nano's, but for what is `changed`."""
    shape = {**dataclasses.asdict(CONFIG.vision_config), "layer_types": None, **changed}
    vision = VisionConfig(**shape)
    held: dict[str, mx.array] = {}
    ours = VisionTower(Made(held, dtype), CONFIG, vision)
    theirs = VisionModel(TheirConfig(**dataclasses.asdict(vision)))
    tensors = [(name.removeprefix(TOWER), x) for name, x in held.items() if name.startswith(TOWER)]
    theirs.update(tree_unflatten(tensors))
    return ours, theirs


def pixels(rows: int, columns: int, batch: int = 1, seed: int = 0) -> mx.array:
    """Pictures of so many patches, bfloat16 [batch, 3, y, x], every intensity of 8 bits among them."""
    drawn = np.random.default_rng(seed).integers(0, 256, (batch, 3, 16 * rows, 16 * columns))
    return mx.array(drawn.astype(np.float32) / 255).astype(mx.bfloat16)


def same(a: mx.array, b: mx.array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(mx.array_equal(a, b))
