"""One safetensors file, mapped into memory: its header checked in full before any tensor is believed.

Format: https://github.com/huggingface/safetensors#format (eight bytes of header length, JSON, then the data).
"""

import json
import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from port.errors import CheckpointError, fetch_again

# name in the file: (bytes an element, numpy type of the raw bits, MLX type)
DTYPES: dict[str, tuple[int, Any, mx.Dtype]] = {
    "BF16": (2, np.uint16, mx.bfloat16),
    "F16": (2, np.uint16, mx.float16),
    "F32": (4, np.uint32, mx.float32),
    "U32": (4, np.uint32, mx.uint32),
    "U8": (1, np.uint8, mx.uint8),
}
_EXPONENT = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F800000}  # all ones: an infinity or a NaN
_LONGEST_HEADER = 100_000_000


@dataclass(frozen=True)
class Slot:
    """Where one tensor lies: `start` and `stop` are bytes from the beginning of the file."""

    shard: "Shard"
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


class Shard:
    """An open safetensors file. Tensors are read when asked for, and never before.

    Args:
        path: the file.
        root: the checkpoint directory, for messages.

    Raises:
        CheckpointError: the file is absent, truncated, or its header is not what the format allows.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self._mend = fetch_again(root, str(path.relative_to(root)))
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise self._refuse(f"it cannot be opened ({error})", "a safetensors file") from error
        length = int.from_bytes(self._map[:8], "little")
        if size < 8 or length > min(size - 8, _LONGEST_HEADER):
            raise self._refuse(
                f"it has {size} bytes and announces a header of {length}",
                "a whole file: this one is truncated or damaged",
            )
        self.slots = self._slots(self._header(length), 8 + length, size)

    def _refuse(self, found: str, expected: str, where: str = "") -> CheckpointError:
        return CheckpointError(
            f"{self.path}{f', tensor {where}' if where else ''}", found=found, expected=expected, mend=self._mend
        )

    def _header(self, length: int) -> dict[str, Any]:
        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            names = [name for name, _ in pairs]
            if len(set(names)) != len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise self._refuse("the header lists it twice", "every name once", twice)
            return dict(pairs)

        try:
            header = json.loads(self._map[8 : 8 + length].decode("utf-8"), object_pairs_hook=unique)
        except ValueError as error:
            raise self._refuse(f"its header is not JSON ({error})", "a JSON object") from error
        if not isinstance(header, dict):
            raise self._refuse("its header is not a JSON object", "names, each with dtype, shape and data_offsets")
        return header

    def _slots(self, header: dict[str, Any], base: int, size: int) -> dict[str, Slot]:
        """Check every entry, and that together they fill the file: no gap, no overlap, nothing beyond its end."""
        slots = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            try:
                dtype, shape = entry["dtype"], tuple(int(n) for n in entry["shape"])
                start, stop = (base + int(n) for n in entry["data_offsets"])
                bytes_each = DTYPES[dtype][0]
            except (KeyError, TypeError, ValueError) as error:
                raise self._refuse(
                    f"its entry is {json.dumps(entry)[:120]}",
                    f"shape, data_offsets and a dtype of {', '.join(DTYPES)}",
                    name,
                ) from error
            if min(shape, default=0) < 0 or stop - start != math.prod(shape) * bytes_each:
                raise self._refuse(
                    f"{dtype} {list(shape)} lies in {stop - start} bytes",
                    f"{math.prod(shape) * bytes_each} bytes",
                    name,
                )
            if stop > size:
                raise self._refuse(
                    f"it ends at byte {stop} of a file of {size}", "a whole file: this one is truncated", name
                )
            slots[name] = Slot(self, name, dtype, shape, start, stop)
        end = base
        for slot in sorted(slots.values(), key=lambda s: (s.start, s.stop)):
            if slot.start != end:
                raise self._refuse(
                    f"it begins at byte {slot.start}", f"byte {end}, where the one before ends", slot.name
                )
            end = slot.stop
        if end != size:
            raise self._refuse(f"it has {size} bytes", f"{end}, which is where its last tensor ends")
        return slots

    def _bits(self, slot: Slot) -> np.ndarray:
        """One tensor's raw words, still in the file.

        Raises:
            CheckpointError: a floating tensor holds a NaN or an infinity.
        """
        size, raw, _ = DTYPES[slot.dtype]
        bits = np.frombuffer(self._map, raw, (slot.stop - slot.start) // size, slot.start).reshape(slot.shape)
        exponent = _EXPONENT.get(slot.dtype)
        if exponent is not None:
            broken = (bits & exponent) == exponent
            if count := int(np.count_nonzero(broken)):
                first = [int(n) for n in np.argwhere(broken)[0]]
                raise self._refuse(
                    f"{count} of {bits.size} values are NaN or infinite, the first at {first}",
                    "finite weights",
                    slot.name,
                )
        return bits

    def check(self, slot: Slot) -> None:
        """Look at one tensor's values without copying them.

        Raises:
            CheckpointError: a floating tensor holds a NaN or an infinity.
        """
        if slot.dtype in _EXPONENT:
            self._bits(slot)

    def read(self, slot: Slot) -> mx.array:
        """Copy one tensor out of the file.

        Returns:
            the array, in the dtype and shape that the file states.

        Raises:
            CheckpointError: a floating tensor holds a NaN or an infinity.
        """
        return mx.array(self._bits(slot)).view(DTYPES[slot.dtype][2])
