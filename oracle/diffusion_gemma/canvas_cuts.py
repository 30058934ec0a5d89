"""The stages of the reference's denoising engine, one callable each: its own functions, and its own loop for a canvas.

B batch, C canvas tokens, D hidden, V vocabulary, n steps of a canvas, m of them that sample.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import mlx.core as mx
import numpy as np
from optiq.vlm._mlxvlm.generate import diffusion as loop

from . import engine
from .canvas_record import gives
from .reference import Reference
from .state import revive
from .tensors import to_mlx, to_numpy
from .vision_cuts import seeing

Trace = dict[str, np.ndarray]
At = Mapping[str, Any]


def temperature(
    reference: Reference, at: At, *, logits: np.ndarray, step: np.ndarray, steps: np.ndarray, schedule: np.ndarray
) -> Trace:
    """Logits over the temperature of a step, float32 [B, C, V]."""
    config = {"t_min": float(schedule[0]), "t_max": float(schedule[1])}
    degrees = loop._diffusion_linear_temperature(int(step), int(steps), config)  # noqa: SLF001
    return {"processed": to_numpy(to_mlx(logits) / degrees)}


def token_confidence(reference: Reference, at: At, *, processed: np.ndarray, tokens: np.ndarray) -> Trace:
    """Probability of each token, float32 [B, C]; in double precision where the logits are (the wide replay)."""
    if processed.dtype == np.float64:
        logs = _log_softmax(processed)
        return {"confidence": np.exp(np.take_along_axis(logs, tokens[..., None], -1)[..., 0])}
    return {"confidence": to_numpy(loop._diffusion_token_probability(to_mlx(processed), to_mlx(tokens)))}  # noqa: SLF001


def token_entropy(reference: Reference, at: At, *, processed: np.ndarray) -> Trace:
    """Entropy of each position, float32 [B, C], by the formula of the step: compiled while a signal follows."""
    if processed.dtype == np.float64:
        logs = _log_softmax(processed)
        return {"entropy": -np.sum(np.exp(logs) * logs, -1)}
    logits = to_mlx(processed)
    if at.get("step", 1) == 1:
        return {"entropy": to_numpy(loop._diffusion_token_entropy(logits))}  # noqa: SLF001
    return {"entropy": to_numpy(loop._diffusion_entropy_probs_chain(logits)[1])}  # noqa: SLF001


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), -1, keepdims=True))


def accept_confidence(
    reference: Reference,
    at: At,
    *,
    confidence: np.ndarray,
    unrevealed: np.ndarray,
    threshold: np.ndarray,
    last: np.ndarray,
) -> Trace:
    """Positions that the confidence sampler accepts, booleans [B, C]."""
    mask = loop._diffusion_confidence_transfer_mask(  # noqa: SLF001
        to_mlx(confidence), to_mlx(unrevealed), float(threshold), force_all=bool(last)
    )
    return {"accepted": to_numpy(mask)}


def accept_entropy(reference: Reference, at: At, *, entropy: np.ndarray, bound: np.ndarray) -> Trace:
    """Positions that the entropy sampler accepts, booleans [B, C]."""
    return {"accepted": to_numpy(loop._diffusion_entropy_transfer_mask(to_mlx(entropy), float(bound)))}  # noqa: SLF001


def renoise(reference: Reference, at: At, *, keep: np.ndarray, tokens: np.ndarray, noise: np.ndarray) -> Trace:
    """Kept tokens, and noise elsewhere: what the loop writes inline."""
    return {"canvas": to_numpy(mx.where(to_mlx(keep), to_mlx(tokens), to_mlx(noise)))}


def stopping(
    reference: Reference,
    at: At,
    *,
    argmax: np.ndarray,
    processed: np.ndarray,
    history: np.ndarray,
    stability: np.ndarray,
    confidence: np.ndarray,
) -> Trace:
    """Whether the canvas is finished, and the history afterwards [h, B, C]."""
    rule = None
    if int(stability) >= 0:
        rule = {"stability_threshold": int(stability), "confidence_threshold": float(confidence)}
    kept = [to_mlx(one) for one in history]
    stop = loop._diffusion_stable_and_confident(to_mlx(argmax), to_mlx(processed), kept, rule)  # noqa: SLF001
    after = np.stack([to_numpy(one) for one in kept]) if kept else np.zeros((0, *argmax.shape), np.int32)
    return {"stop": np.array(stop), "history": after}


def sampler_step(
    reference: Reference,
    at: At,
    *,
    processed: np.ndarray,
    canvas: np.ndarray,
    draft: np.ndarray,
    revealed: np.ndarray,
    noise: np.ndarray,
    drawn: np.ndarray,
    options: np.ndarray,
) -> Trace:
    """One step of a sampler, of the loop's own functions put together as it does inline."""
    asked = json.loads(options.tobytes())
    best = mx.argmax(to_mlx(processed), axis=-1).astype(mx.int32)
    chosen = to_mlx(drawn) if drawn.size else best
    shown, seen = to_mlx(draft), to_mlx(revealed)
    if asked["sampler"] == "entropy-bound":
        entropy = token_entropy(reference, {"step": 1 if asked["last"] else 2}, processed=processed)["entropy"]
        accepted = to_mlx(accept_entropy(reference, at, entropy=entropy, bound=np.array(asked["bound"]))["accepted"])
        tokens = mx.where(accepted, chosen, to_mlx(noise))
        shown, seen = best, accepted
    else:
        sure = to_mlx(token_confidence(reference, at, processed=processed, tokens=to_numpy(chosen))["confidence"])
        accepted = loop._diffusion_confidence_transfer_mask(  # noqa: SLF001
            sure.astype(mx.float32), ~seen, asked["threshold"], force_all=asked["last"]
        )
        shown, seen = mx.where(accepted, chosen, shown), seen | accepted
        tokens = mx.where(seen, shown, to_mlx(noise))
    outs = {"argmax": best, "accepted": accepted, "canvas": tokens, "draft": shown, "revealed": seen}
    return {name: to_numpy(x) for name, x in outs.items()}


def denoise_canvas(
    reference: Reference,
    at: At,
    *,
    past_keys: Trace,
    past_values: Trace,
    cursors: np.ndarray,
    tokens: np.ndarray,
    noise: np.ndarray,
    drawn: np.ndarray,
    canvases: np.ndarray,
    drafts: np.ndarray,
    reveals: np.ndarray,
    stops: np.ndarray,
    options: np.ndarray,
) -> Trace:
    """A whole canvas through the loop itself, its draws answered: free, or forced to see the recorded canvases."""
    asked = json.loads(options.tobytes())
    caches = [
        revive(layer, past_keys[str(i)], past_values[str(i)], cursors[i], decoder=True)
        for i, layer in enumerate(reference.model.layers)
    ]
    answers = engine.Answers(caches, _each([tokens, *noise]), _each(drawn))
    if not at.get("free"):
        answers.canvases, answers.stops = _each(canvases), [bool(stop) for stop in stops]
    observed = engine.Observed(answers)
    knobs = {name: asked[name] for name in ("sampler", "threshold", "temperature", "steps", "show")}
    length = {"max_tokens": 1, "max_canvas": tokens.shape[1], "min_canvas": tokens.shape[1]}
    with observed.watching():
        engine.generate(reference, [2], {**knobs, **length, "generation_config": asked["generation_config"]}, None)
    return gives(observed.canvases[0])


def _each(arrays: Any) -> Iterator[mx.array]:
    return iter([to_mlx(array) for array in arrays])


def generate(
    reference: Reference, at: At, *, ids: np.ndarray, options: np.ndarray, seed: np.ndarray, said: np.ndarray
) -> Trace:
    """A whole generation: tokens, steps, finish reason, segments and drafts, draws; or that it raised."""
    log: list[dict[str, Any]] = []
    with engine.drawing(log):
        return outcome(lambda: engine.generate(reference, ids, json.loads(options.tobytes()), int(seed)), log)[0]


def generate_image(
    reference: Reference,
    at: At,
    *,
    ids: np.ndarray,
    types: np.ndarray,
    features: np.ndarray,
    options: np.ndarray,
    seed: np.ndarray,
    said: np.ndarray,
) -> Trace:
    """A whole generation about pictures whose soft tokens are given."""
    log: list[dict[str, Any]] = []
    asked = json.loads(options.tobytes())
    with engine.drawing(log), seeing(reference.model.model.encoder, features):
        return outcome(lambda: engine.generate(reference, ids, asked, int(seed), types), log)[0]


def outcome(run: Any, log: list[dict[str, Any]]) -> tuple[Trace, str]:
    """A run as the table spells it, and what the reference raised, under its name; nothing where it did not."""
    found, said = engine.Generated(), ""
    try:
        found = run()
    except Exception as error:  # noqa: BLE001 -- whatever it raises is what there is to record
        said = f"ORACLE-ERROR {type(error).__name__}: {error}"
    texts = {
        "outcome": "error" if said else "finished",
        "finish": found.finish,
        "segments": "" if said else json.dumps(found.segments, ensure_ascii=False),
        "drafts": "" if said else json.dumps(found.drafts, ensure_ascii=False),
        "draws": "" if said else json.dumps(log, sort_keys=True),
    }
    numbers = {"tokens": np.array(found.tokens, np.int32), "steps": np.array(found.steps, np.int32)}
    return {**{name: _bytes(text) for name, text in texts.items()}, **numbers}, said


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8).copy()
