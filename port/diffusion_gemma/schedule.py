"""The temperature of a denoising step: linear, hottest at the first step.

Source: mlx-optiq 0.7.7 (`generate/diffusion.py`). Legend: B batch, C canvas tokens, V vocabulary.
"""

from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True)
class Schedule:
    """Temperature at step k of n: t_min + (t_max - t_min) * (k / n), k counting down from n to 1.

    Attributes:
        t_min: what it tends to as k falls.
        t_max: what the first step has.
    """

    t_min: float = 0.4
    t_max: float = 0.8

    def temperature(self, step: int, steps: int) -> float:
        """The temperature of `step`, in double precision, as a positive number without unit."""
        return self.t_min + (self.t_max - self.t_min) * (step / steps)


def temper(logits_BCV: mx.array, temperature: float) -> mx.array:
    """Logits divided by a temperature, float32 [B, C, V].

    A division: the product with the reciprocal rounds a third of them differently, and thresholds see it.
    """
    return logits_BCV / temperature
