"""The two samplers: which positions of a canvas are accepted, and what stands in the others next.

Every function is pure; random tokens are arguments. Source: mlx-optiq 0.7.7 (`generate/diffusion.py`).
Legend: B batch, C canvas tokens, V vocabulary.
"""

from dataclasses import dataclass

import mlx.core as mx

CONFIDENCE = "confidence-threshold"
ENTROPY = "entropy-bound"
SAMPLERS = (CONFIDENCE, ENTROPY)


@dataclass(frozen=True)
class Canvas:
    """The state of a canvas between two steps.

    Attributes:
        tokens: int32 [B, C], what the next step sees.
        draft: int32 [B, C], what would be shown.
        revealed: booleans [B, C], which of the draft is meant.
    """

    tokens: mx.array
    draft: mx.array
    revealed: mx.array


@dataclass(frozen=True)
class Sampled:
    """What a sampler made of a step.

    Attributes:
        canvas: the state afterwards.
        accepted: booleans [B, C].
        measure: float32 [B, C], the confidence or the entropy that decided.
        probabilities: float32 [B, C, V] where the entropy's formula came by them, else None.
    """

    canvas: Canvas
    accepted: mx.array
    measure: mx.array
    probabilities: mx.array | None = None


def token_confidence(processed_BCV: mx.array, tokens_BC: mx.array) -> mx.array:
    """The probability of each position's token, float32 [B, C]: exp(logit - logsumexp)."""
    logits_BCV = processed_BCV.astype(mx.float32)
    own_BC = mx.take_along_axis(logits_BCV, tokens_BC[..., None], axis=-1).squeeze(-1)
    return mx.exp(own_BC - mx.logsumexp(logits_BCV, axis=-1))


def _entropy(logits_BCV: mx.array) -> tuple[mx.array, mx.array]:
    log_BCV = logits_BCV - mx.logsumexp(logits_BCV, axis=-1, keepdims=True)
    probabilities_BCV = mx.exp(log_BCV)
    return probabilities_BCV, -mx.sum(probabilities_BCV * log_BCV, axis=-1)


_entropy_compiled = mx.compile(_entropy)


def token_entropy(processed_BCV: mx.array) -> mx.array:
    """The entropy of each position in nats, float32 [B, C]."""
    return _entropy(processed_BCV.astype(mx.float32))[1]


def probabilities_and_entropy(processed_BCV: mx.array) -> tuple[mx.array, mx.array]:
    """Probabilities [B, C, V] and entropy [B, C], float32, in one kernel.

    Compiled, as the reference is wherever a signal follows: on a GPU the fused kernel rounds differently.
    """
    return _entropy_compiled(processed_BCV.astype(mx.float32))


def accept_confidence(confidence_BC: mx.array, hidden_BC: mx.array, threshold: float, *, last: bool) -> mx.array:
    """Hidden positions that are sure enough; the surest one where none is; all of them on the last step.

    Args:
        confidence_BC: float32.
        hidden_BC: booleans, true where nothing was accepted yet.
        threshold: reached by an equal confidence too.
        last: whether no step follows.

    Returns:
        booleans [B, C].
    """
    if last:
        return hidden_BC
    sure_BC = hidden_BC & (confidence_BC >= threshold)
    stuck_B = mx.any(hidden_BC, axis=-1) & ~mx.any(sure_BC, axis=-1)
    best_B = mx.argmax(mx.where(hidden_BC, confidence_BC, -mx.inf), axis=-1)
    forced_BC = (mx.arange(confidence_BC.shape[-1])[None] == best_B[:, None]) & stuck_B[:, None]
    return sure_BC | forced_BC


def accept_entropy(entropy_BC: mx.array, bound: float) -> mx.array:
    """The least uncertain positions, as long as the entropies before the next one sum to at most `bound` nats.

    Returns:
        booleans [B, C].
    """
    order_BC = mx.argsort(entropy_BC, axis=-1)
    sorted_BC = mx.take_along_axis(entropy_BC, order_BC, axis=-1)
    # Subtracting the running maximum leaves the sum of what came before; it can fall below it by a rounding.
    within_BC = mx.cumsum(sorted_BC, axis=-1) - mx.cummax(sorted_BC, axis=-1) <= bound
    return mx.put_along_axis(mx.zeros_like(within_BC), order_BC, within_BC, axis=-1)


def renoise(keep_BC: mx.array, tokens_BC: mx.array, noise_BC: mx.array) -> mx.array:
    """The tokens that are kept, and noise elsewhere, int32 [B, C]."""
    return mx.where(keep_BC, tokens_BC, noise_BC)


def step_confidence(
    canvas: Canvas, processed_BCV: mx.array, chosen_BC: mx.array, noise_BC: mx.array, threshold: float, *, last: bool
) -> Sampled:
    """One step of the confidence sampler: what was accepted once stays.

    Args:
        canvas: the state before.
        processed_BCV: tempered logits.
        chosen_BC: int32, the best tokens, or drawn ones.
        noise_BC: int32.
        threshold: of the probability.
        last: whether no step follows.
    """
    measure_BC = token_confidence(processed_BCV, chosen_BC)
    accepted_BC = accept_confidence(measure_BC, ~canvas.revealed, threshold, last=last)
    draft_BC = mx.where(accepted_BC, chosen_BC, canvas.draft)
    revealed_BC = canvas.revealed | accepted_BC
    tokens_BC = renoise(revealed_BC, draft_BC, noise_BC)
    return Sampled(Canvas(tokens_BC, draft_BC, revealed_BC), accepted_BC, measure_BC)


def step_entropy(
    argmax_BC: mx.array, processed_BCV: mx.array, chosen_BC: mx.array, noise_BC: mx.array, bound: float, *, last: bool
) -> Sampled:
    """One step of the entropy sampler: it decides anew about every position.

    Args:
        argmax_BC: int32, the best tokens, which the draft shows.
        processed_BCV: tempered logits.
        chosen_BC: int32, the best tokens, or drawn ones.
        noise_BC: int32.
        bound: nats.
        last: whether no step follows.
    """
    probabilities_BCV, measure_BC = None, None
    if last:
        measure_BC = token_entropy(processed_BCV)
    else:
        probabilities_BCV, measure_BC = probabilities_and_entropy(processed_BCV)
    accepted_BC = accept_entropy(measure_BC, bound)
    tokens_BC = renoise(accepted_BC, chosen_BC, noise_BC)
    return Sampled(Canvas(tokens_BC, argmax_BC, accepted_BC), accepted_BC, measure_BC, probabilities_BCV)
