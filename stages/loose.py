"""Arrays and facts in one file that lives as long as a process: no golden, and sealed by nobody."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from .gates import Tensor

FACTS = ":facts"  # no tensor is called that


def save(path: Path, tensors: Mapping[str, Tensor], facts: Any = None) -> None:
    """Write arrays, and anything that JSON can say of them. npz knows no bfloat16: its bits are kept, and its name."""
    dtypes = {name: str(tensor.dtype) for name, tensor in tensors.items()}
    arrays = {n: x.view(np.uint16) if x.dtype == ml_dtypes.bfloat16 else x for n, x in tensors.items()}
    arrays[FACTS] = np.frombuffer(json.dumps([dtypes, facts]).encode(), np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: Path) -> tuple[dict[str, Tensor], Any]:
    """What `save` wrote: (arrays, facts)."""
    with np.load(path) as file:
        dtypes, facts = json.loads(file[FACTS].tobytes())
        return {n: file[n].view(ml_dtypes.bfloat16) if t == "bfloat16" else file[n] for n, t in dtypes.items()}, facts
