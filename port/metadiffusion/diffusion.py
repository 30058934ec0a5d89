"""Masking and the two losses. Every draw is an argument.

Legend: B batch, T tokens, V vocabulary with [MASK].
"""

import mlx.core as mx
import numpy as np

from .exponential import logsumexp

LEAST = 1e-3  # chance of being masked that a loss is divided by, as in LLaDA, which draws no smaller t


def shares(u_B: np.ndarray, low: float, high: float) -> np.ndarray:
    """Shares of masks [B] float32: the unit draws `u` spread over [low, high]."""
    return (low + (high - low) * u_B.astype(np.float64)).astype(np.float32)


def antithetic(u: float, batch: int) -> np.ndarray:
    """`batch` unit draws [B] float32 from one, evenly apart, so that a batch always sees small and large shares.

    As in MDLM (Sahoo et al. 2024).
    """
    return ((u + np.arange(batch) / batch) % 1.0).astype(np.float32)


def corrupt(
    ids_BT: mx.array, real_BT: mx.array | None, t_B: mx.array, uniform_BT: mx.array, mask_id: int
) -> tuple[mx.array, mx.array]:
    """(masked [B, T] bool, noisy ids): each real token is masked where its draw is below t, and at least one is.

    q(x_t) of LLaDA (Nie et al. 2025). A row without real tokens has no mask.

    Args:
        ids_BT: int32.
        real_BT: bool, None where all are real.
        t_B: float32 shares.
        uniform_BT: float32 draws in [0, 1).
        mask_id: the id of [MASK].
    """
    real_BT = mx.ones(ids_BT.shape, dtype=mx.bool_) if real_BT is None else real_BT
    masked_BT = (uniform_BT < t_B[:, None]) & real_BT
    lowest_B = mx.argmin(mx.where(real_BT, uniform_BT, mx.inf), axis=-1)
    lonely_BT = (mx.arange(ids_BT.shape[1])[None] == lowest_B[:, None]) & ~masked_BT.any(axis=-1, keepdims=True)
    masked_BT = masked_BT | (lonely_BT & real_BT)
    return masked_BT, mx.where(masked_BT, mask_id, ids_BT)


def chosen(labels_BT: mx.array, masked_BT: mx.array, pad: int | None) -> mx.array:
    """Positions that are scored: masked, and no padding."""
    return masked_BT if pad is None else masked_BT & (labels_BT != pad)


def cross_entropy(logits: mx.array, labels_BT: mx.array) -> mx.array:
    """-log softmax(logits)[label] [B, T]."""
    return logsumexp(logits) - mx.take_along_axis(logits, labels_BT[..., None], axis=-1)[..., 0]


def flat_loss(logits: mx.array, labels_BT: mx.array, masked_BT: mx.array, pad: int | None) -> mx.array:
    """Mean cross entropy over the scored positions, 0-d; a zero that can be differentiated where there are none."""
    scored = chosen(labels_BT, masked_BT, pad)
    each_BT = cross_entropy(logits, labels_BT)
    return mx.where(scored, each_BT, 0.0).sum() / mx.maximum(scored.sum(), 1)


def elbo_loss(logits: mx.array, labels_BT: mx.array, masked_BT: mx.array, t_B: mx.array, pad: int | None) -> mx.array:
    """Cross entropy at the scored positions, each divided by its chance t of being masked, over all real positions.

    The bound of LLaDA (Nie et al. 2025, eq. 3), 0-d.
    """
    real = mx.ones(labels_BT.shape, dtype=mx.bool_) if pad is None else labels_BT != pad
    each_BT = cross_entropy(logits, labels_BT) / mx.maximum(t_B, LEAST)[:, None]
    return mx.where(masked_BT & real, each_BT, 0.0).sum() / mx.maximum(real.sum(), 1)
