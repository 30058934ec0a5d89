"""Load the reference through its public door, name it, pin it, and widen it."""

import hashlib
import warnings
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.switch_layers import QuantizedSwitchLinear
from optiq.vlm import diffusion_gemma as optiq

from .tensors import to_numpy

PACKAGE = "mlx-optiq"
VERSION = "0.7.7"
SAFETENSORS_NAMES = {mx.bfloat16: "BF16", mx.float32: "F32", mx.uint32: "U32", mx.float16: "F16"}


class OracleError(Exception):
    """The reference is not the one this project is pinned to, or cannot do what was asked."""


@dataclass(frozen=True)
class Reference:
    """The loaded oracle: its model and tokenizer, and what it held before any compute cast."""

    model: Any
    tokenizer: Any
    compute: str
    digests: dict[str, str]


def load(checkpoint: Path, compute: str) -> Reference:
    """Load `checkpoint` as mlx-optiq does; float32 compute casts every floating parameter after the load.

    Raises:
        OracleError: another version of mlx-optiq than the pinned one is installed.
    """
    found = metadata.version(PACKAGE)
    if found != VERSION:
        raise OracleError(
            f"{PACKAGE} {found} is installed; goldens are recorded from {VERSION}. "
            f"Mend it with: pip install {PACKAGE}=={VERSION}"
        )
    with warnings.catch_warnings():
        # mlx-optiq leaves the configuration's file to the garbage collector to close.
        warnings.simplefilter("ignore", ResourceWarning)
        model, tokenizer = optiq.load(str(checkpoint))
    digests = {name: _digest(value) for name, value in tree_flatten(model.parameters())}
    if compute == "float32":
        _cast(model, mx.float32)
    elif compute != "bfloat16":
        raise OracleError(f"compute is {compute!r}; it is bfloat16 or float32")
    return Reference(model, tokenizer, compute, digests)


def widen(checkpoint: Path, compute: str, dtype: mx.Dtype) -> Reference:
    """The reference again, with every quantized weight dequantized to `dtype` and every float cast to it.

    Its own module code then computes what its rounding is measured against. The weights' values are those that
    `compute` uses (bfloat16 scales widened, never requantized).
    """
    wide = load(checkpoint, compute)
    _dequantize(wide.model, dtype)
    _cast(wide.model, dtype)
    return wide


def _digest(value: mx.array) -> str:
    shape = "x".join(str(size) for size in value.shape)
    head = f"{SAFETENSORS_NAMES[value.dtype]}:{shape}:".encode()
    return hashlib.sha256(head + to_numpy(value).tobytes()).hexdigest()


def _cast(model: Any, dtype: mx.Dtype) -> None:
    def cast(value: mx.array) -> mx.array:
        return value.astype(dtype) if mx.issubdtype(value.dtype, mx.floating) else value

    model.update(tree_map(cast, model.parameters()))
    mx.eval(model.parameters())


def _dequantize(model: Any, dtype: mx.Dtype) -> None:
    """Swap each quantized leaf for its plain twin."""
    for path, module in model.named_modules():
        if not isinstance(module, nn.QuantizedLinear | nn.QuantizedEmbedding | QuantizedSwitchLinear):
            continue
        # MLX dequantizes in the scales' dtype and knows no float64; float32 holds code times bfloat16 scale exactly.
        weight = mx.dequantize(
            module.weight,
            module.scales.astype(mx.float32),
            module.biases.astype(mx.float32),
            group_size=module.group_size,
            bits=module.bits,
        ).astype(dtype)
        if path.endswith("patch_embedder.input_proj"):
            _assign(model, path, Truncating(weight))
            continue
        plain = _plain(module)
        plain.weight = weight
        _assign(model, path, plain)


class _WideExperts(nn.Module):
    """One matrix an expert, in any float dtype: MLX's own gather matmul knows none but float32 on a CPU."""

    def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:  # noqa: ARG002
        """`x` [..., 1, in] times the matrix of each index [...]; how they are sorted changes no sum."""
        return x @ self.weight[indices].swapaxes(-1, -2)


class Truncating(nn.Module):
    """The wide twin of a quantized patch projection.

    The reference casts patches to the dtype of its weight, which is uint32 there: fractions are cut off. They still
    are, or the wide replay would measure another function than the one that rounds.
    """

    def __init__(self, wide: mx.array) -> None:
        super().__init__()
        self.weight = mx.zeros((1,), mx.uint32)
        self.wide = wide

    def __call__(self, x: mx.array) -> mx.array:
        """Whole numbers [..., I] to floats [..., O]."""
        return x.astype(self.wide.dtype) @ self.wide.T


def _plain(module: Any) -> Any:
    if isinstance(module, nn.QuantizedEmbedding):
        return nn.Embedding(1, 1)
    if isinstance(module, QuantizedSwitchLinear):
        return _WideExperts()
    if "bias" in module:
        raise OracleError("a quantized linear with a bias has no wide twin here")
    return nn.Linear(1, 1, bias=False)


def _assign(model: Any, path: str, module: Any) -> None:
    *parents, last = path.split(".")
    holder = model
    for part in parents:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    holder[last] = module
