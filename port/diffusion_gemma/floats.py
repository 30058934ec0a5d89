"""A checkpoint's matrices as plain floats, for the same model code to run, and be differentiated, on them."""

import dataclasses

import mlx.core as mx

from port.errors import CheckpointError

from .config import ModelConfig
from .model import DiffusionGemma
from .weights import Param, Weights

Arrays = dict[str, mx.array]


class FloatParam(Param):
    """A parameter that is an array from the start, and can be exchanged."""

    def __init__(self, name: str, array: mx.array) -> None:
        self.name = name
        self.array_now = array

    @property
    def array(self) -> mx.array:
        """The array that the model uses now."""
        return self.array_now


class FloatWeights(Weights):
    """Float parameters by their names in the model, instead of files: every matrix unpacked.

    Args:
        arrays: floats by name; without a vision tower's, the model has none.
        config: of the checkpoint that they came from.
    """

    def __init__(self, arrays: Arrays, config: ModelConfig) -> None:
        vision = config.vision_config if any(is_vision(name) for name in arrays) else None
        self.config = dataclasses.replace(config, quantization=None, vision_config=vision)
        self.params: dict[str, Param] = {}
        self.slots = {}
        self.float = "F32"
        self._held = {name: FloatParam(name, array) for name, array in arrays.items()}

    def claim(self, name: str, shape: tuple[int, ...], dtype: str) -> Param:  # noqa: ARG002 -- there is one dtype
        """Take a parameter for the one module that uses it.

        Raises:
            CheckpointError: it is missing or of another shape.
        """
        held = self._held.get(name)
        if held is None or held.array.shape != shape:
            raise CheckpointError(
                f"parameter {name}",
                found="it is missing" if held is None else f"its shape is {list(held.array.shape)}",
                expected=f"floats {list(shape)}",
                mend="take the parameters from a checkpoint of the same config.json",
            )
        self.params[name] = held
        return held

    def finish(self) -> None:
        """Nothing to check: whatever is left over is not trained."""

    def use(self, arrays: Arrays) -> None:
        """Let the model compute with these from now on: floats by name."""
        for name, array in arrays.items():
            self._held[name].array_now = array


def is_vision(name: str) -> bool:
    """Whether a parameter belongs to the vision tower or its projection."""
    return ".vision_tower." in name or ".embed_vision." in name


def unpacked(model: DiffusionGemma, *, vision: bool = False) -> Arrays:
    """Every parameter of the language model in float32: packed matrices unpacked, under the names of their weights.

    Args:
        model: loaded with compute "float32".
        vision: those of the vision tower too.
    """
    held = {name: param for name, param in model.weights.params.items() if vision or not is_vision(name)}
    arrays: Arrays = {}
    for name, param in held.items():
        path, _, part = name.rpartition(".")
        if part in {"scales", "biases"}:
            continue
        array = param.array
        if f"{path}.scales" in held:
            entry = (model.config.quantization or {})[path]
            scales, biases = held[f"{path}.scales"].array, held[f"{path}.biases"].array
            array = mx.dequantize(array, scales, biases, group_size=entry["group_size"], bits=entry["bits"])
        arrays[name] = array.astype(mx.float32)
    mx.eval(arrays)
    return arrays


def small_room(weights: FloatWeights, soft_tokens: int = 64) -> FloatWeights:
    """Lay a tower made from these weights out for fewer soft tokens: padding costs time, and changes no value.

    Args:
        weights: changed in place, and returned.
        soft_tokens: of the largest picture that will be looked at.
    """
    vision = weights.config.vision_config
    if vision is not None:
        vision = dataclasses.replace(vision, default_output_length=soft_tokens)
        weights.config = dataclasses.replace(weights.config, vision_config=vision)
    return weights


def packing_of(arrays: Arrays, config: ModelConfig) -> dict[str, dict[str, int]]:
    """How to pack each matrix of `arrays`: name to `group_size` and `bits`, as the configuration's map says."""
    entries = config.quantization or {}
    found = {name: entries.get(name.removesuffix(".weight")) for name in arrays}
    return {
        name: {k: entry[k] for k in ("group_size", "bits")} for name, entry in found.items() if isinstance(entry, dict)
    }


def packed(array: mx.array, how: dict[str, int]) -> tuple[mx.array, mx.array, mx.array]:
    """Words, scales and biases of a matrix, from its values as bfloat16, as a converter would make them."""
    return mx.quantize(array.astype(mx.bfloat16), **how)


def as_packed(arrays: Arrays, packing: dict[str, dict[str, int]]) -> Arrays:
    """The values that packing would leave, with the gradient of what they were (straight through).

    Args:
        arrays: floats by name.
        packing: how matrices are packed; all others are rounded to bfloat16.
    """
    left: Arrays = {}
    for name, array in arrays.items():
        if name in packing:
            value = mx.dequantize(*packed(mx.stop_gradient(array), packing[name]), **packing[name])
        else:
            value = mx.stop_gradient(array).astype(mx.bfloat16)
        left[name] = array + mx.stop_gradient(value.astype(mx.float32) - array)
    return left
