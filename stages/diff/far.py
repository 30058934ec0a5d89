"""How far apart two tensors are, in the five ways that a person asks for."""

from dataclasses import dataclass

import numpy as np

from stages.gates import FLOATS, Tensor, bits, wide


@dataclass(frozen=True)
class Far:
    """The distance of the port's tensor from the oracle's.

    Attributes:
        differing: Elements whose bits differ.
        of: Elements there are.
        max_abs: Largest difference.
        max_ulp: Largest distance in representable numbers of the dtype; None for integers, and for NaN or infinity.
        relative_rms: Root mean square of the difference over that of the oracle's; None where the oracle's is 0.
        cosine: Of the angle between the two; None where one of them is 0.
        norm_ratio: Length of the port's over that of the oracle's; None where the oracle's is 0.
    """

    differing: int
    of: int
    max_abs: float
    max_ulp: float | None
    relative_rms: float | None
    cosine: float | None
    norm_ratio: float | None

    @property
    def equal(self) -> bool:
        """Whether every bit is."""
        return not self.differing


def far(oracle: Tensor, port: Tensor) -> Far | None:
    """The distance of two tensors of one size and dtype; None where these differ: no number compares them."""
    if oracle.size != port.size or oracle.dtype != port.dtype:
        return None
    a, b = bits(oracle).ravel(), bits(port).ravel()
    differing = int(np.count_nonzero(a != b))
    x, y = wide(oracle).ravel(), wide(port).ravel()
    if not differing:
        return Far(0, oracle.size, 0.0, 0.0 if oracle.dtype in FLOATS else None, 0.0, 1.0, 1.0)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        gap = y - x
        long_x, long_y = float(np.linalg.norm(x)), float(np.linalg.norm(y))
        both = long_x * long_y
        return Far(
            differing,
            oracle.size,
            float(np.max(np.abs(gap))),
            _ulps(oracle, port) if oracle.dtype in FLOATS and np.isfinite(x).all() and np.isfinite(y).all() else None,
            float(np.linalg.norm(gap)) / long_x if long_x else None,
            float(x @ y) / both if both else None,
            long_y / long_x if long_x else None,
        )


def _ulps(oracle: Tensor, port: Tensor) -> float:
    def ordered(tensor: Tensor) -> Tensor:
        raw, half = bits(tensor).ravel(), 1 << (8 * tensor.dtype.itemsize - 1)
        # float64 holds every distance below 2^53, and the larger ones nearly.
        magnitude: Tensor = (raw & raw.dtype.type(half - 1)).astype(np.float64)
        signed: Tensor = np.where(raw >= half, -magnitude, magnitude)
        return signed

    return float(np.max(np.abs(ordered(oracle) - ordered(port))))
