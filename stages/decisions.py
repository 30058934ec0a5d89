"""The ledger of decisions: elements that were decided otherwise, each with the oracle's margin beside its noise.

A tie is a decision that the oracle's own rounding could have turned; it is counted and shown, and is no failure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from .gates import Exact, Measured, Tensor, Yardstick, _address, wide

Outs = Mapping[str, Tensor]
Margins = Callable[[Yardstick], "Margin | None"]


@dataclass(frozen=True)
class Margin:
    """How far from a decision the oracle was.

    Attributes:
        distance: of each element, in the scores' own unit.
        spacing: one unit in the last place of the scores there.
        noise: rms of the oracle's own rounding of the scores, or None where no wide replay was made.
    """

    distance: Tensor
    spacing: Tensor
    noise: float | None


def between_best(yardstick: Yardstick) -> Margin | None:
    """Of an argmax: the best logit over the next one, from the outputs `best` and `margin`."""
    if "margin" not in yardstick.outs:
        return None
    best = yardstick.outs["best"]
    return Margin(wide(yardstick.outs["margin"]), wide(np.spacing(np.abs(best))), yardstick.noises.get("margin"))


@dataclass(frozen=True)
class Left(Exact):
    """Every bit equal; where not, the note says at which step a trajectory first left the oracle, and if it returned.

    The first axis counts steps, from the first one made.
    """

    margins: Margins | None = field(default=None, repr=False)

    def measure(self, oracle: Tensor, port: Tensor, yardstick: Yardstick) -> Measured:
        """Differing bits, and the story of the differing steps."""
        found = super().measure(oracle, port, yardstick)
        if not found.value:
            return found
        return Measured(found.value, found.index, story(oracle, port, self.margins and self.margins(yardstick)))


@dataclass(frozen=True)
class Decisions:
    """Elements decided otherwise beyond the oracle's noise, at most `bound`; those within are ties.

    Attributes:
        units: a margin of at most this many times the oracle's noise is a tie.
        margins: where the margins are found; without any, every difference counts.
    """

    bound: float
    because: str
    units: float = 4.0
    margins: Margins | None = field(default=None, repr=False)
    name: str = "decisions"

    def measure(self, oracle: Tensor, port: Tensor, yardstick: Yardstick) -> Measured:
        """Count the differences that are no ties."""
        differs = oracle != port
        if not differs.any():
            return Measured(0.0)
        margin = self.margins(yardstick) if self.margins else None
        ties = np.zeros_like(differs)
        if margin is not None and margin.noise:
            ties = differs & (margin.distance <= self.units * margin.noise)
        outside = differs & ~ties
        note = f"{int(ties.sum())} ties; {story(oracle, port, margin)}"
        worst = outside if outside.any() else differs
        return Measured(float(outside.sum()), _address(worst.astype(np.float64)), note)


def story(oracle: Tensor, port: Tensor, margin: Margin | None) -> str:
    """Where steps differ: the first that left, the first that came back and stayed, and the margin of the first."""
    differs: Tensor = np.atleast_1d(oracle != port)
    if not differs.any():
        return ""
    steps: Tensor = np.any(differs.reshape(differs.shape[0], -1), axis=1)
    first, last = int(np.argmax(steps)), len(steps) - 1 - int(np.argmax(steps[::-1]))
    back = f"back from step {last + 2} on" if last + 1 < len(steps) else "does not come back"
    text = f"leaves the oracle at step {first + 1} of {len(steps)}, {back}"
    if margin is None or margin.distance.shape != differs.shape:
        return text
    where = _address(differs.astype(np.float64))
    distance = float(margin.distance[where])
    units = f", {distance / margin.noise:.3g} times its noise" if margin.noise else ""
    return f"{text}; its margin there was {distance / float(margin.spacing[where]):.0f} ULP{units}"
