"""Gates: each measures one number against one bound, at an address. Not-a-number and infinity never pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Tensor = NDArray[Any]
FLOATS = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True)
class Yardstick:
    """What the golden knows about the oracle's own rounding of one tensor.

    Attributes:
        delta: The wide reference minus the oracle's output (float64), or None where no wide replay was made.
        noise: rms of the oracle's output against the wide reference: of this stage alone, or of the whole run (free).
        ins: The stage's inputs, for a decision's margin.
        outs: The oracle's outputs, likewise.
        noises: rms as in `noise`, of each output.
    """

    delta: Tensor | None = None
    noise: float | None = None
    ins: Mapping[str, Tensor] = field(default_factory=dict)
    outs: Mapping[str, Tensor] = field(default_factory=dict)
    noises: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """A gate's number, and where it was found: None where a shape, a dtype or a value forbade measuring."""

    value: float | None
    index: tuple[int, ...] | None = None
    note: str = ""


class Gate(Protocol):
    """One number, one bound, a reason."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def bound(self) -> float: ...  # noqa: D102
    @property
    def because(self) -> str: ...  # noqa: D102
    def measure(self, oracle: Tensor, port: Tensor, yardstick: Yardstick) -> Measured: ...  # noqa: D102


def judge(gate: Gate, oracle: Tensor, port: Tensor, yardstick: Yardstick) -> tuple[bool, Measured]:
    """Hold `port` to `oracle`: (passed, what was measured). Shape, dtype and finiteness come before any number."""
    if oracle.dtype != port.dtype:
        return False, Measured(None, note=f"dtype is {port.dtype}, should be {oracle.dtype}")
    if oracle.shape != port.shape:
        return False, Measured(None, note=f"shape is {port.shape}, should be {oracle.shape}")
    for side, tensor in (("oracle", oracle), ("port", port)):
        if (index := _not_finite(tensor)) is not None:
            return False, Measured(None, index, note=f"{side} is {tensor[index]} here")
    measured = gate.measure(oracle, port, yardstick)
    passed = measured.value is not None and bool(measured.value <= gate.bound)
    return passed, measured


def _not_finite(tensor: Tensor) -> tuple[int, ...] | None:
    if tensor.dtype not in FLOATS:
        return None
    wrong = ~np.isfinite(tensor.astype(np.float32) if tensor.dtype.itemsize < 4 else tensor)
    return _address(wrong) if wrong.any() else None


def _address(scores: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(scores)), scores.shape))


def bits(tensor: Tensor) -> Tensor:
    """The same memory as unsigned integers (booleans as bytes)."""
    return np.ascontiguousarray(tensor).view(np.dtype(f"u{tensor.dtype.itemsize}")).reshape(tensor.shape)


def wide(tensor: Tensor) -> Tensor:
    """Any number as float64."""
    return tensor.astype(np.float64)


@dataclass(frozen=True)
class Exact:
    """Every bit equal: the number of differing bits is 0."""

    because: str = "the same operations in the same order on the same numeric backend give the same bits"
    name: str = "exact"
    bound: float = 0.0

    def measure(self, oracle: Tensor, port: Tensor, yardstick: Yardstick) -> Measured:  # noqa: ARG002
        """Count differing bits; the address is the element that is furthest off."""
        differing = bits(oracle) ^ bits(port)
        total = int(np.bitwise_count(differing).sum())
        if not total:
            return Measured(0.0)
        with np.errstate(over="ignore"):
            distance = np.where(differing != 0, np.abs(wide(oracle) - wide(port)), -1.0)
        return Measured(float(total), _address(distance))


@dataclass(frozen=True)
class Within:
    """Error against the wide reference, row by row, at most `bound` times the oracle's own.

    A row is the last axis; its error is a root mean square, divided by the oracle's in that row or by the oracle's in
    the whole tensor, whichever is larger (a row that the oracle happened to round luckily sets no bound); and never by
    less than `least` units in the last place of the row's largest element: a few numbers may all be rounded luckily.
    With `apart` each index of the first axis has a yardstick of its own in place of the whole tensor's: steps that hand
    their rounding on do not lend it to the steps before them.
    In a free run, where errors have travelled, the whole tensor's distance to the oracle is taken in units of the
    oracle's own free noise, of which the golden knows no more than that.
    """

    bound: float
    because: str
    name: str = "within"
    least: float = 0.0
    apart: bool = False

    def measure(self, oracle: Tensor, port: Tensor, yardstick: Yardstick) -> Measured:
        """Worst ratio of errors, at its row's element that is furthest off."""
        if not oracle.size:
            return Measured(0.0)
        unit = yardstick.noise if yardstick.delta is None else yardstick.delta
        if unit is None or not np.isfinite(unit).all():
            lack = "no wide replay" if unit is None else "a wide replay with NaN or infinity"
            return Measured(None, note=f"the golden holds {lack} of this tensor: record it with `harness dump`")
        gap = np.atleast_1d(wide(port) - wide(oracle))
        floor = self.least * np.spacing(np.max(np.abs(np.atleast_1d(oracle)), axis=-1)) if self.least else 0.0
        if yardstick.delta is None:
            rows = _row_rms(gap)
            row = _address(rows) if rows.ndim else ()
            ratio = _ratio(_row_rms(gap.ravel()), np.asarray(np.maximum(unit, np.max(floor)), np.float64))
        else:
            delta = np.atleast_1d(wide(yardstick.delta))
            together = _row_rms(delta.ravel())
            if self.apart and delta.ndim > 1:
                together = _row_rms(delta.reshape(len(delta), -1)).reshape(-1, *[1] * (delta.ndim - 2))
            own = np.maximum(np.maximum(_row_rms(delta), together), floor)
            ratios = _ratio(_row_rms(gap - delta), own)
            row = _address(ratios) if ratios.ndim else ()
            ratio = ratios[row]
        column = int(np.argmax(np.abs(gap[row])))
        return Measured(float(ratio), (*row, column)[: oracle.ndim])


def _ratio(error: Tensor, own: Tensor) -> Tensor:
    """Error in units of the oracle's own; where that is 0, 0 for no error and infinity for any."""
    ratio: Tensor = np.where(own > 0, error / np.where(own > 0, own, 1.0), np.where(error > 0, np.inf, 0.0))
    return ratio


def _row_rms(gap: Tensor) -> Tensor:
    # Scaled by its largest element, so that a tiny error's square does not vanish and a huge one's stays finite.
    top = np.max(np.abs(gap), axis=-1)
    safe = np.where(top > 0, top, 1.0)
    rms: Tensor = top * np.sqrt(np.mean((gap / safe[..., None]) ** 2, axis=-1))
    return rms


@dataclass(frozen=True)
class Unasked:
    """Nothing is compared, and no verdict given: for an output that says nothing outside the exact tier."""

    because: str
    name: str = "unasked"
    bound: float = 0.0

    def measure(self, oracle: Tensor, port: Tensor, yardstick: Yardstick) -> Measured:  # noqa: ARG002
        """Nothing."""
        return Measured(0.0, note="not asked in this tier")


@dataclass(frozen=True)
class KL:
    """The worst position's KL(oracle || port) in nats, in float64 from logits [..., V], at most `bound`."""

    bound: float
    because: str
    name: str = "kl"

    def measure(self, oracle: Tensor, port: Tensor, yardstick: Yardstick) -> Measured:  # noqa: ARG002
        """Largest divergence over all positions."""
        if not oracle.size:
            return Measured(0.0)
        divergence = kl(oracle, port)
        row = _address(divergence) if divergence.ndim else ()
        return Measured(float(divergence[row]), row)


def kl(oracle: Tensor, port: Tensor) -> Tensor:
    """KL(oracle || port) [...] in nats of logits [..., V].

    The sum of q - p - p d with d = log q - log p, which is p (e^d - 1 - d): each term is at least 0, so nothing cancels
    to below it. Near equality the two-term series keeps what the subtraction would lose; further off the first form
    stays finite where e^d would not.
    """
    log_p, log_q = _log_softmax(wide(oracle)), _log_softmax(wide(port))
    d = log_q - log_p
    p, near = np.exp(log_p), np.abs(d) < 1e-4
    close = np.where(near, d, 0.0)
    total: Tensor = np.sum(np.where(near, p * close * close * (0.5 + close / 6.0), np.exp(log_q) - p - p * d), axis=-1)
    return total


def _log_softmax(logits: Tensor) -> Tensor:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: Tensor = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return result


@dataclass(frozen=True)
class Agreement:
    """Decisions that differ, at most `bound`: rows of integers as sets, or the argmax of float rows.

    The note lists each disagreement with the oracle's margin, so that a tie and a bug look different.
    """

    bound: float
    because: str
    scores: str = ""
    name: str = "agreement"

    def measure(self, oracle: Tensor, port: Tensor, yardstick: Yardstick) -> Measured:
        """Count rows that decide otherwise."""
        if not oracle.size:
            return Measured(0.0)
        if oracle.dtype in FLOATS:
            scores = oracle
            chosen, other = wide(oracle).argmax(-1)[..., None], wide(port).argmax(-1)[..., None]
        else:
            chosen, other = np.sort(np.atleast_1d(oracle), axis=-1), np.sort(np.atleast_1d(port), axis=-1)
            scores = yardstick.ins.get(self.scores, oracle)
        missed = np.any(chosen != other, axis=-1)
        rows = [tuple(int(i) for i in row) for row in np.argwhere(missed)]
        notes = [self._describe(row, chosen[row], other[row], scores, yardstick.noise) for row in rows[:8]]
        return Measured(float(len(rows)), rows[0] if rows else None, "; ".join(notes))

    @staticmethod
    def _describe(row: tuple[int, ...], chosen: Tensor, other: Tensor, scores: Tensor, noise: float | None) -> str:
        only, instead = (
            sorted(set(chosen.tolist()) - set(other.tolist())),
            sorted(set(other.tolist()) - set(chosen.tolist())),
        )
        text = f"at {row} the oracle chose {only}, the port {instead}"
        if scores.dtype not in FLOATS or not only or not instead:
            return text
        candidates = scores[row]
        if not all(0 <= i < len(candidates) for i in instead):
            return f"{text}, which there is not among {len(candidates)}"
        low, high = wide(candidates[only]).min(), wide(candidates[instead]).max()
        margin = float(low - high)
        units = f", {margin / noise:.3g} times its noise" if noise else ""
        return (
            f"{text}, by a margin of {ulps(np.array(low, scores.dtype), np.array(high, scores.dtype)):.0f} ULP{units}"
        )


def ulps(a: Tensor, b: Tensor) -> float:
    """Distance in representable numbers between two finite scalars of one float dtype."""

    def ordered(x: Tensor) -> int:
        raw, sign = int(bits(x)), 1 << (8 * x.dtype.itemsize - 1)
        return sign - raw if raw & sign else raw

    return float(abs(ordered(a) - ordered(b)))
