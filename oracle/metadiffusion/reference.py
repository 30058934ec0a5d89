"""The oracle on a checkpoint: a MetaDiffusion's own, or a Llama's that is converted while it is opened."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from .convert import configure, convert
from .model import Config, MetaDiffusion


class OracleError(Exception):
    """The oracle cannot run what it was given."""


@dataclass
class Reference:
    """The oracle, loaded.

    Attributes:
        model: In evaluation mode.
        raw: config.json.
        source: The tensors of the checkpoint's files.
    """

    model: MetaDiffusion
    raw: dict[str, Any]
    source: dict[str, Tensor]


def load(checkpoint: Path, compute: str) -> Reference:
    """Open a checkpoint directory.

    Raises:
        OracleError: in another dtype than float32: the seed feeds its timestep network float32 whatever the weights
            are, and then raises.
    """
    if compute != "float32":
        raise OracleError(f"the seed's model runs in float32 only, not in {compute}")
    torch.set_num_threads(1)  # how work is cut among threads decides which elements go through which vector lanes
    raw = json.loads((checkpoint / "config.json").read_text())
    source: dict[str, Tensor] = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        source |= load_file(path)
    if raw["model_type"] == "llama":
        model = convert(source, configure(raw, "corrected"))
    else:
        names = {field.name for field in dataclasses.fields(Config)}
        model = MetaDiffusion(Config(**{name: value for name, value in raw.items() if name in names}))
        model.load_state_dict(source)
    return Reference(model.eval(), raw, source)


def load_wide(checkpoint: Path, compute: str, kind: str) -> Reference:
    """The same weights, everything in `kind` ("float64" or "float32"): what the oracle's rounding is measured by."""
    plain, wide = load(checkpoint, compute), {"float64": torch.float64, "float32": torch.float32}[kind]
    model = MetaDiffusion(dataclasses.replace(plain.model.config, wide=wide)).to(wide)
    model.load_state_dict(plain.model.state_dict())
    return Reference(model.eval(), plain.raw, plain.source)


def to_torch(x: np.ndarray) -> Tensor:
    """A numpy array as a tensor; integers become the int64 that torch indexes with."""
    made = torch.from_numpy(np.array(x))
    return made.long() if made.dtype == torch.int32 else made


def to_numpy(x: Tensor) -> np.ndarray:
    """A tensor as the harness holds it; integers become int32."""
    array = x.detach().numpy().copy()
    return array.astype(np.int32) if array.dtype == np.int64 else array
