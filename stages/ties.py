"""How near a canvas' decisions were to others: distances in units of the oracle's own rounding, step by step.

On random weights each step hands its rounding on to the next many times larger, so every step has a yardstick of its
own: what the wide replay of the same canvases, step by step the oracle's, says of it.

n steps, m of them that sample, B batch, C canvas tokens.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from goldens.store import Record

from .gates import Tensor, wide

# Times the rms rounding of its step: a decision is a tie where floats that pass (`Within(6)` in the table) can turn it.
NEAR = 6.0


@dataclass(frozen=True)
class Near:
    """Distances to another decision over the oracle's rounding; infinite where there is nothing to decide.

    Attributes:
        best: [n, B, C], of the best token.
        accepted: [m, B, C].
        stop: [n].
    """

    best: Tensor
    accepted: Tensor
    stop: Tensor

    def of(self, tensor: str, step: int) -> Tensor:
        """What may be turned by rounding at a step: of what follows from several decisions, the nearest."""
        if tensor == "stop":
            found: Tensor = self.stop[step]
        elif tensor == "argmax" or step >= len(self.accepted):
            found = self.best[step]
        else:
            found = np.minimum(self.best[step], self.accepted[step])
        return found


def near(canvas: Record, replayed: Record) -> Near:
    """The distances of a recorded canvas.

    Args:
        canvas: an occurrence of `denoise_canvas`, forced or free.
        replayed: the forced one of the same canvas, whose wide replay was told every step's tokens.
    """
    asked: dict[str, Any] = json.loads(canvas.ins["options"].tobytes())
    outs = canvas.outs
    of_margin, of_measure = (_by_step(replayed, name, len(outs[name])) for name in ("margin", "measure"))
    best = _over(wide(outs["margin"]), of_margin)
    accepted = np.full(outs["accepted"].shape, np.inf)
    for i, measure in enumerate(wide(outs["measure"])):
        if asked["sampler"] == "entropy-bound":
            bound = float(asked["generation_config"]["sampler_config"]["entropy_bound"])
            accepted[i] = [_summed(row, bound, of_measure[i]) for row in measure]
        elif asked["steps"] - i > 1:  # the last step accepts whatever is left
            hidden = ~outs["revealed"][i - 1] if i else np.ones(measure.shape, bool)
            rows = zip(measure, hidden, strict=True)
            accepted[i] = [_surest(row, mine, asked["threshold"], of_measure[i]) for row, mine in rows]
    return Near(best, accepted, _stop(asked, best, accepted, outs, of_measure))


def _by_step(record: Record, name: str, steps: int) -> Tensor:
    """The oracle's rounding, an rms at each step [steps]; 0 where no wide replay says anything."""
    delta = (record.wide or {}).get(name)
    if delta is None or len(delta) < steps:
        return np.zeros(steps)
    rms: Tensor = np.sqrt(np.mean(wide(delta[:steps]).reshape(steps, -1) ** 2, axis=1)) if steps else np.zeros(0)
    return rms


def _over(distance: Tensor, noise: Tensor) -> Tensor:
    """Distances [n, ...] in units of their step's noise [n]; without any, only none at all is near."""
    unit = noise.reshape(-1, *[1] * (distance.ndim - 1))
    ratio: Tensor = np.where(unit > 0, distance / np.where(unit > 0, unit, 1.0), np.where(distance > 0, np.inf, 0.0))
    return ratio


def _surest(measure: Tensor, hidden: Tensor, threshold: float, noise: float) -> Tensor:
    """Of the confidence sampler [C]: to the threshold, or, where none reaches it, to being the surest one."""
    distance = np.where(hidden, np.abs(measure - threshold), np.inf)
    if hidden.any() and not (hidden & (measure >= threshold)).any():
        order = np.argsort(np.where(hidden, -measure, np.inf), kind="stable")
        first = measure[order[0]]
        second = measure[order[1]] if hidden.sum() > 1 else -np.inf
        rank = np.where(np.arange(len(measure)) == order[0], first - second, first - measure)
        distance = np.where(hidden, np.minimum(distance, rank), np.inf)
    return _over(distance, np.full(len(distance), noise))


def _summed(measure: Tensor, bound: float, noise: float) -> Tensor:
    """Of the entropy sampler [C]: of the sum before a position to the bound, or of it to one on the other side."""
    order = np.argsort(measure, kind="stable")
    ranked = measure[order]
    before = np.concatenate([[0.0], np.cumsum(ranked)[:-1]])
    if not np.isfinite(bound):
        return np.full(len(measure), np.inf)
    rank = np.arange(len(measure))
    # A sum of k roundings is the root of k times as far off; the surest is accepted whatever it sums to.
    to_bound = np.where(rank > 0, np.abs(before - bound) / np.sqrt(np.maximum(rank, 1)), np.inf)
    inside = before <= bound
    last, first = ranked[inside].max(initial=-np.inf), ranked[~inside].min(initial=np.inf)
    across = np.where(inside, first - ranked, ranked - last)
    found = np.empty(len(measure))
    found[order] = _over(np.minimum(to_bound, np.abs(across)), np.full(len(measure), noise))
    return found


def _stop(asked: dict[str, Any], best: Tensor, accepted: Tensor, outs: dict[str, Tensor], noise: Tensor) -> Tensor:
    """Of the end of a canvas [n]: of the rule's mean to its bound, and of everything that it follows from."""
    found = np.array([step.min(initial=np.inf) for step in best])
    config, entropy = asked["generation_config"], asked["sampler"] == "entropy-bound"
    for i, step in enumerate(accepted if not entropy else ()):  # a canvas that is revealed ends
        found[i] = min(found[i], step.min(initial=np.inf))
    stability = int(config.get("stability_threshold", 0))
    # Best tokens of earlier steps count in the rule.
    found = np.array([found[max(i - stability, 0) : i + 1].min() for i in range(len(found))])
    if entropy and "confidence_threshold" in config:
        means = wide(outs["measure"]).reshape(len(outs["measure"]), -1).mean(axis=1)
        rule = _over(np.abs(means - config["confidence_threshold"]), noise)
        found[: len(rule)] = np.minimum(found[: len(rule)], rule)
    return found
