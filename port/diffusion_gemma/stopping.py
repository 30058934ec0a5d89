"""When a canvas is finished before its steps are: it no longer changes, and the model is sure of it.

Source: mlx-optiq 0.7.7 (`generate/diffusion.py`). Legend: B batch, C canvas tokens, V vocabulary.
"""

from dataclasses import dataclass

import mlx.core as mx

from .samplers import token_entropy

History = tuple[mx.array, ...]


@dataclass(frozen=True)
class Stopping:
    """The rule.

    Attributes:
        stability: how many earlier steps must have had the same best tokens.
        confidence: nats; the mean entropy of the canvas must be below it.
    """

    stability: int = 1
    confidence: float = 0.005


def remember(history: History, argmax_BC: mx.array, stability: int) -> History:
    """The history with this step's best tokens, cut to the last `stability` steps.

    Arrays are values here: what is remembered is not what a later step writes to.
    """
    return (*history, argmax_BC)[-stability:] if stability else ()


def stable(history: History, argmax_BC: mx.array, stability: int) -> bool:
    """Whether all of the last `stability` steps had these best tokens; never before there were as many steps."""
    return len(history) == stability and all(bool(mx.all(argmax_BC == before).item()) for before in history)


def confident(processed_BCV: mx.array, confidence: float) -> bool:
    """Whether the canvas' mean entropy is below `confidence` nats."""
    return bool((mx.mean(token_entropy(processed_BCV)) < confidence).item())


def decide(
    history: History, argmax_BC: mx.array, processed_BCV: mx.array, stopping: Stopping | None
) -> tuple[bool, History]:
    """Whether this step is the last, and the history for the next.

    Args:
        history: best tokens of earlier steps, oldest first.
        argmax_BC: best tokens of this one.
        processed_BCV: tempered logits.
        stopping: the rule; None never stops, and remembers nothing.
    """
    if stopping is None:
        return False, history
    done = stable(history, argmax_BC, stopping.stability) and confident(processed_BCV, stopping.confidence)
    return done, remember(history, argmax_BC, stopping.stability)
