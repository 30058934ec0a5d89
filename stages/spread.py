"""How two tensors differ, summed up while both are at hand."""

import numpy as np

from reports.spread import BINS, CHANGED, SIDE, Spread

from .gates import FLOATS, Tensor, bits, wide

SMALL = 8  # rows and columns of the map of a tensor that passes


def spread(oracle: Tensor, port: Tensor, *, passed: bool) -> Spread | None:
    """The difference of two tensors of one shape and dtype; None where every bit is equal."""
    if not oracle.size or oracle.tobytes() == port.tobytes():
        return None
    floats = oracle.dtype in FLOATS
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.nan_to_num(np.abs(wide(oracle) - wide(port)), nan=np.inf, posinf=np.inf)
    finite = np.isfinite(wide(oracle)) & np.isfinite(wide(port))
    error = np.where(bits(oracle) == bits(port), 0.0, error)
    distance = np.where(bits(oracle) == bits(port), 0.0, _ulps(oracle, port) if floats else error)
    axes = tuple(sorted(sorted(range(oracle.ndim), key=lambda axis: -oracle.shape[axis])[:2]))
    return Spread(
        shape=oracle.shape,
        axes=axes,
        grid=_grid(error, axes, SMALL if passed else SIDE),
        counts=_counts(distance, finite | (bits(oracle) == bits(port))),
        changed=None if floats else _changed(oracle, port),
    )


def _ulps(a: Tensor, b: Tensor) -> Tensor:
    """Distance in representable numbers, as float64: exact to 2**53, and no more is asked of a histogram."""

    def ordered(x: Tensor) -> Tensor:
        raw, sign = bits(x), np.array(1 << (8 * x.dtype.itemsize - 1), bits(x).dtype)
        magnitude = (raw & ~sign).astype(np.float64)
        folded: Tensor = np.where(raw & sign, -magnitude, magnitude)
        return folded

    near: Tensor = ordered(a) - ordered(b)
    if a.dtype.itemsize < 8:
        return np.abs(near)
    # float64 patterns pass 2**53: neighbours of one sign are told apart as integers.
    same = (bits(a) >> 63) == (bits(b) >> 63)
    apart = np.where(bits(a) > bits(b), bits(a) - bits(b), bits(b) - bits(a))
    exact: Tensor = np.where(same, apart.astype(np.float64), np.abs(near))
    return exact


def _counts(distance: Tensor, finite: Tensor) -> tuple[int, ...]:
    power = np.floor(np.log2(np.maximum(np.where(finite, distance, 1.0), 1.0)))
    bins = np.where(distance == 0, 0, np.minimum(power + 1, BINS - 2))
    bins = np.where(finite, bins, BINS - 1).astype(np.int64)
    return tuple(int(n) for n in np.bincount(bins.ravel(), minlength=BINS))


def _grid(error: Tensor, axes: tuple[int, ...], side: int) -> tuple[tuple[float, ...], ...]:
    if not axes:
        return ((_rounded(float(error)),),)
    flat = error.max(axis=tuple(axis for axis in range(error.ndim) if axis not in axes))
    flat = np.atleast_2d(flat)
    for axis in (0, 1):
        count = min(side, flat.shape[axis])
        flat = np.maximum.reduceat(flat, [n * flat.shape[axis] // count for n in range(count)], axis=axis)
    return tuple(tuple(_rounded(float(value)) for value in row) for row in flat)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _changed(oracle: Tensor, port: Tensor) -> tuple[tuple[int, int], ...] | None:
    places = np.flatnonzero(oracle.ravel() != port.ravel())
    if len(places) > CHANGED or oracle.dtype.kind not in "iub":
        return None
    return tuple((int(place), int(port.ravel()[place])) for place in places)
