"""How near the oracle's decisions were to other ones, from what the decision was made on. All in float64.

Nothing is rounded between these inputs and the decision, so these margins excuse no difference: they are for reading.
B batch, C canvas tokens, V vocabulary.
"""

import numpy as np

from .decisions import Margin
from .gates import Tensor, Yardstick, wide


def _margin(distance: Tensor, scores: Tensor) -> Margin:
    return Margin(distance, wide(np.spacing(np.abs(scores))), None)


def of_argmax(yardstick: Yardstick) -> Margin | None:
    """Of the best token [B, C]: its logit over the next one's, from the input `processed` [B, C, V]."""
    logits = yardstick.ins["processed"]
    if logits.shape[-1] < 2:
        return None
    top = np.sort(logits, axis=-1)[..., -2:]
    return _margin(wide(top[..., 1]) - wide(top[..., 0]), top[..., 1])


def of_threshold(yardstick: Yardstick) -> Margin | None:
    """Of accepting [B, C] by confidence: its distance from the threshold.

    Where none of a row reaches it, the surest is taken: then its distance from the next. Infinite where nothing is
    decided: revealed positions, and the last step, which takes all.
    """
    confidence, hidden = yardstick.ins["confidence"], yardstick.ins["unrevealed"]
    distance = np.abs(wide(confidence) - float(yardstick.ins["threshold"]))
    distance[~hidden] = np.inf
    if bool(yardstick.ins["last"]):
        distance[:] = np.inf
        return _margin(distance, confidence)
    for row, (sure, asked) in enumerate(zip(wide(confidence), hidden, strict=True)):
        places = np.flatnonzero(asked)
        if len(places) > 1 and (sure[places] < float(yardstick.ins["threshold"])).all():
            first, second = places[np.argsort(-sure[places], kind="stable")[:2]]
            distance[row, first] = min(distance[row, first], sure[first] - sure[second])
    return _margin(distance, confidence)


def of_budget(yardstick: Yardstick) -> Margin | None:
    """Of accepting [B, C] by entropy: how far the sum of all smaller entropies is from the bound, in nats."""
    entropy = yardstick.ins["entropy"]
    order = np.argsort(entropy, axis=-1, kind="stable")
    ordered = np.take_along_axis(wide(entropy), order, axis=-1)
    before = np.cumsum(ordered, axis=-1) - ordered
    distance = np.empty_like(before)
    np.put_along_axis(distance, order, np.abs(before - float(yardstick.ins["bound"])), axis=-1)
    return _margin(distance, np.maximum(entropy, yardstick.ins["bound"].astype(entropy.dtype)))


def of_stopping(yardstick: Yardstick) -> Margin | None:
    """Of stopping: how far the mean entropy of the canvas is from its bound, in nats; None where there is no rule."""
    if int(yardstick.ins["stability"]) < 0:
        return None
    logits, bound = wide(yardstick.ins["processed"]), yardstick.ins["confidence"]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    mean = np.mean(-(np.exp(log_p) * log_p).sum(axis=-1))
    # The mean is taken in single precision on both sides, whatever the logits are.
    return _margin(np.abs(mean - float(bound)), np.asarray(max(mean, float(bound)), np.float32))
