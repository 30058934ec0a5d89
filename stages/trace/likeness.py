"""When two values of Python are the same, whatever framework, shape and dtype they have."""

import hashlib
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

NOTHING = "nothing"  # the key of None
TELLING = 8  # elements or letters
MEMBERS = 1000  # of a container that are looked at


def key(value: Any) -> str | None:
    """What is equal where two values are, whatever their shape, dtype and framework; None of what is no value."""
    if value is None:
        return NOTHING
    if isinstance(value, (str, bytes)):
        return _numbers(np.frombuffer(value.encode() if isinstance(value, str) else value, np.uint8))
    if is_array(value):
        return _numbers(evaluated(value))
    numbers = isinstance(value, (list, tuple)) and value and all(isinstance(one, (bool, int, float)) for one in value)
    if numbers or isinstance(value, (bool, int, float, np.generic, np.ndarray)) or hasattr(value, "getpixel"):
        return _numbers(value)
    return None


def telling(value: Any) -> bool:
    """Whether two such values are hardly equal by chance."""
    if isinstance(value, (str, bytes, list, tuple)):
        return len(value) >= TELLING
    return int(getattr(value, "size", 0) if not hasattr(value, "getpixel") else TELLING) >= TELLING


def _numbers(value: Any) -> str:
    with np.errstate(invalid="ignore"):
        array = np.asarray(value)
        # Arrays in single precision: numpy's own doubles become that on their way into a framework.
        kind = np.complex128 if array.dtype.kind == "c" else np.float32 if array.ndim else np.float64
        flat = np.ascontiguousarray(array.astype(kind)).ravel()
        flat = flat.astype(np.float64) if array.ndim and array.size == 1 else flat
    return hashlib.sha256(flat.tobytes()).hexdigest()[:20]


def is_array(value: Any) -> bool:
    """Whether it is an array of MLX."""
    return type(value).__module__ == "mlx.core" and type(value).__name__ == "array"


def evaluated(array: Any) -> Any:
    """An array of MLX as numpy's."""
    import mlx.core as mx  # noqa: PLC0415 -- looking at a table needs no framework

    if array.dtype == mx.bfloat16:
        return np.array(array.view(mx.uint16)).view(ml_dtypes.bfloat16)
    return np.array(array)


def members(value: Any) -> list[Any]:
    """What a value holds: of a container its members, of an object its attributes; of large ones the first."""
    if isinstance(value, dict):
        return [one for _, one in zip(range(MEMBERS), value.values(), strict=False)]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [one for _, one in zip(range(MEMBERS), value, strict=False)]
    if isinstance(value, (str, bytes, int, float, type, ModuleType, np.ndarray)) or value is None or callable(value):
        return []
    if type(value).__module__.startswith(("port.", "oracle.")):
        found = list(getattr(value, "__dict__", {}).values())
        slots = getattr(type(value), "__slots__", ())
        return found + [getattr(value, name) for name in slots if hasattr(value, name)]
    return []
