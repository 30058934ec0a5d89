"""The tensors of a checkpoint directory: each claimed once by the module that uses it, and read when it is used.

Layouts understood: shards with or without an index, vision tensors among them (mlx-optiq 0.2.7) or in a bf16
sidecar (mlx-optiq 0.7).
"""

from pathlib import Path

import mlx.core as mx

from port.errors import CheckpointError, ConfigError, fetch_again
from port.gather import gather
from port.shards import Slot

from .config import ModelConfig
from .quantization import Quantization, packing

SIDECAR = "optiq_vision.safetensors"
COMPUTE = {"bfloat16": mx.bfloat16, "float32": mx.float32}
_FLOATS = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


class Param:
    """One tensor of the model: a place in a file until it is used, an array from then on."""

    def __init__(self, name: str, slot: Slot, compute: mx.Dtype | None) -> None:
        self.name = name
        self._slot = slot
        self._compute = compute
        self._array: mx.array | None = None

    @property
    def array(self) -> mx.array:
        """The tensor, floats in the compute dtype; read from the file the first time.

        Raises:
            CheckpointError: it holds a NaN or an infinity.
        """
        if self._array is None:
            stored = self.stored()
            self._array = stored if self._compute is None else stored.astype(self._compute)
        return self._array

    @property
    def is_read(self) -> bool:
        """Whether the tensor is in memory."""
        return self._array is not None

    @property
    def dtype(self) -> str:
        """The dtype in the file, as safetensors spells it."""
        return self._slot.dtype

    def stored(self) -> mx.array:
        """The tensor as it lies in the file, in its own dtype; not kept."""
        return self._slot.shard.read(self._slot)

    def release(self) -> None:
        """Forget the array; the next use reads it again."""
        self._array = None


class Weights:
    """All tensors of a directory, by their names in the model.

    Args:
        directory: the checkpoint.
        config: what the tensors have to agree with.
        compute: "bfloat16" or "float32", the dtype that floating tensors are used in.

    Raises:
        CheckpointError: a file is absent, damaged or outside the directory, or index and files disagree.
        ConfigError: `dtype` is not a floating type of the format, or `compute` is not one of the two.
    """

    def __init__(self, directory: Path, config: ModelConfig, compute: str) -> None:
        self.directory = directory
        self.config = config
        self.params: dict[str, Param] = {}
        stored, path = config.dtype or "bfloat16", directory / "config.json"
        for value, known, key in ((stored, _FLOATS, "dtype"), (compute, COMPUTE, "the compute dtype")):
            if value not in known:
                raise ConfigError(
                    str(path),
                    found=f"{key} is {value!r}",
                    expected=f"one of {', '.join(known)}",
                    mend=fetch_again(directory, path.name),
                )
        self.float = _FLOATS[stored]
        self._compute = COMPUTE[compute]
        self.slots = _gather(directory)

    def read(self) -> None:
        """Read the language model's tensors now, where a compiled graph could not: there a value must exist before."""
        held = [param for name, param in self.params.items() if ".vision_tower." not in name]
        mx.eval([param.array for param in held])

    def claim(self, name: str, shape: tuple[int, ...], dtype: str) -> Param:
        """Take a tensor for the one module that uses it.

        Args:
            name: its name in the model.
            shape: the shape that the configuration demands.
            dtype: the dtype likewise, as safetensors spells it.

        Raises:
            CheckpointError: it is missing, already taken, or of another shape or dtype.
        """
        if name in self.params:
            raise self._refuse(name, "it is used twice", "one module a tensor")
        slot = self.slots.get(name)
        if slot is None:
            raise self._refuse(name, "it is missing", f"{dtype} {list(shape)}")
        if (slot.dtype, slot.shape) != (dtype, shape):
            raise self._refuse(name, f"it is {slot}", f"{dtype} {list(shape)}, as config.json demands")
        self.params[name] = Param(name, slot, self._compute if dtype == self.float else None)
        return self.params[name]

    def finish(self) -> None:
        """Check that nothing was left over.

        Raises:
            CheckpointError: naming the first tensor that no module has use for.
        """
        if extra := sorted(set(self.slots) - set(self.params)):
            more = f", and {len(extra) - 1} more" if len(extra) > 1 else ""
            raise self._refuse(extra[0], f"no part of the model uses it{more}", "only what config.json has a place for")

    def verify(self) -> None:
        """Look at every floating value now, instead of when its layer first runs; nothing is kept in memory.

        Raises:
            CheckpointError: naming the first tensor with a NaN or an infinity.
        """
        for name in sorted(self.slots):
            slot = self.slots[name]
            slot.shard.check(slot)

    def _refuse(self, name: str, found: str, expected: str) -> CheckpointError:
        slot = self.slots.get(name)
        where = slot.shard.path if slot else self.directory
        mend = fetch_again(self.directory)
        return CheckpointError(f"{where}, tensor {name}", found=found, expected=expected, mend=mend)


class Scope:
    """A place in the model's tree of names, from which a module claims what is its own.

    Args:
        weights: the tensors.
        path: the module's name, without a final dot.
    """

    def __init__(self, weights: Weights, path: str) -> None:
        self.weights = weights
        self.path = path

    def __truediv__(self, name: str) -> "Scope":
        return Scope(self.weights, f"{self.path}.{name}")

    def param(self, name: str, shape: tuple[int, ...], dtype: str = "") -> Param:
        """Claim `path.name`; an empty dtype means the checkpoint's floating type."""
        return self.weights.claim(f"{self.path}.{name}", shape, dtype or self.weights.float)

    def packing(self) -> Quantization | None:
        """How this module's weight is packed: by its entry in the map, or by the map's defaults where it has scales."""
        scaled = f"{self.path}.scales" in self.weights.slots
        return packing(self.weights.config.quantization, self.path, scaled=scaled)

    def release(self) -> None:
        """Forget every array below this place."""
        for name, param in self.weights.params.items():
            if name.startswith(f"{self.path}."):
                param.release()


def _canonical(name: str, path: Path) -> str:
    """A stored name as the model spells it: sidecars omit the encoder, unpacked experts omit `.weight`."""
    if path.name == SIDECAR and not name.startswith("model."):
        name = f"model.encoder.{name}"
    return f"{name}.weight" if name.endswith((".experts.gate_up_proj", ".experts.down_proj")) else name


def _gather(directory: Path) -> dict[str, Slot]:
    """Every tensor of the directory by its name in the model; the vision sidecar stands outside the index."""
    sidecar = next((p for p in (directory / "optiq" / SIDECAR, directory / SIDECAR) if p.exists()), None)
    return gather(directory, _canonical, sidecar)
