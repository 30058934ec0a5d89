"""The engine's stages, one callable each: numpy in, numpy out, parameters named as in the table of stages.

Legend: B batch, C canvas tokens, V vocabulary, n steps of a canvas, m of them that sample, k that leave a signal, h
remembered steps.
"""

# ruff: noqa: ARG001 -- every cut takes `at`, whether or not its stage looks at it.

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from port.errors import PortError
from port.observe import drawing

from . import canvas as canvases
from .borders import Trace, restore_all, to_mlx, to_numpy
from .canvas_record import as_trace, finished, refused
from .draws import Replay
from .generate import decoder
from .model import DiffusionGemma
from .options import Options, Settings, resolve
from .samplers import (
    CONFIDENCE,
    Canvas,
    probabilities_and_entropy,
    step_confidence,
    step_entropy,
)
from .samplers import (
    accept_confidence as accept_sure,
)
from .samplers import (
    accept_entropy as accept_certain,
)
from .samplers import (
    renoise as fill,
)
from .samplers import (
    token_confidence as confidence_of,
)
from .samplers import (
    token_entropy as entropy_of,
)
from .schedule import Schedule, temper
from .sight import Sight
from .stopping import Stopping, decide

At = Mapping[str, Any]


def temperature(
    model: DiffusionGemma, at: At, *, logits: np.ndarray, step: np.ndarray, steps: np.ndarray, schedule: np.ndarray
) -> Trace:
    """Tempered logits, float32 [B, C, V]."""
    degrees = Schedule(float(schedule[0]), float(schedule[1])).temperature(int(step), int(steps))
    return {"processed": to_numpy(temper(to_mlx(logits), degrees))}


def token_confidence(model: DiffusionGemma, at: At, *, processed: np.ndarray, tokens: np.ndarray) -> Trace:
    """The probability of each token, float32 [B, C]."""
    return {"confidence": to_numpy(confidence_of(to_mlx(processed), to_mlx(tokens)))}


def token_entropy(model: DiffusionGemma, at: At, *, processed: np.ndarray) -> Trace:
    """The entropy of each position, float32 [B, C]; on every step but the last together with the probabilities."""
    logits = to_mlx(processed)
    return {"entropy": to_numpy(entropy_of(logits) if at["step"] == 1 else probabilities_and_entropy(logits)[1])}


def accept_confidence(
    model: DiffusionGemma,
    at: At,
    *,
    confidence: np.ndarray,
    unrevealed: np.ndarray,
    threshold: np.ndarray,
    last: np.ndarray,
) -> Trace:
    """Positions that the confidence sampler accepts, booleans [B, C]."""
    return {
        "accepted": to_numpy(accept_sure(to_mlx(confidence), to_mlx(unrevealed), float(threshold), last=bool(last)))
    }


def accept_entropy(model: DiffusionGemma, at: At, *, entropy: np.ndarray, bound: np.ndarray) -> Trace:
    """Positions that the entropy sampler accepts, booleans [B, C]."""
    return {"accepted": to_numpy(accept_certain(to_mlx(entropy), float(bound)))}


def renoise(model: DiffusionGemma, at: At, *, keep: np.ndarray, tokens: np.ndarray, noise: np.ndarray) -> Trace:
    """Kept tokens, and noise elsewhere, int32 [B, C]."""
    return {"canvas": to_numpy(fill(to_mlx(keep), to_mlx(tokens), to_mlx(noise)))}


def stopping(
    model: DiffusionGemma,
    at: At,
    *,
    argmax: np.ndarray,
    processed: np.ndarray,
    history: np.ndarray,
    stability: np.ndarray,
    confidence: np.ndarray,
) -> Trace:
    """Whether the canvas is finished, and what is remembered afterwards [h, B, C]."""
    rule = Stopping(int(stability), float(confidence)) if int(stability) >= 0 else None
    stop, after = decide(tuple(to_mlx(one) for one in history), to_mlx(argmax), to_mlx(processed), rule)
    kept = np.stack([to_numpy(one) for one in after]) if after else np.zeros((0, *argmax.shape), np.int32)
    return {"stop": np.array(stop), "history": kept}


def sampler_step(
    model: DiffusionGemma,
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
    """One step of a sampler: best tokens, what was accepted, and the state afterwards."""
    asked, logits = json.loads(options.tobytes()), to_mlx(processed)
    argmax = canvases.best(logits)
    chosen, random = to_mlx(drawn) if drawn.size else argmax, to_mlx(noise)
    if asked["sampler"] == CONFIDENCE:
        before = Canvas(to_mlx(canvas), to_mlx(draft), to_mlx(revealed))
        made = step_confidence(before, logits, chosen, random, asked["threshold"], last=asked["last"])
    else:
        made = step_entropy(argmax, logits, chosen, random, asked["bound"], last=asked["last"])
    after = made.canvas
    outs = {"argmax": argmax, "accepted": made.accepted, "canvas": after.tokens, "draft": after.draft}
    return {name: to_numpy(x) for name, x in {**outs, "revealed": after.revealed}.items()}


def denoise_canvas(
    model: DiffusionGemma,
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
    """A whole canvas from recorded draws: free, or forced, each step beginning with the canvas that was recorded."""
    windows = [layer.self_attn.window for layer in model.layers]
    caches = restore_all(windows, past_keys, past_values, cursors, ordered=True)
    settings = canvas_settings(model, json.loads(options.tobytes()))
    draws = Replay([to_mlx(one) for one in noise], [to_mlx(one) for one in drawn])
    forward = decoder(model, caches, tokens.shape[1], compiled=False)
    if at.get("free"):
        carry = _begin(tokens)
        return as_trace(_steps(model, forward, settings, draws, carry), tokens.shape)
    befores = [Canvas(*(to_mlx(x) for x in before)) for before in zip(canvases, drafts, reveals, strict=True)]
    return as_trace(_forced(model, forward, settings, draws, befores), tokens.shape)


def _begin(tokens: np.ndarray) -> canvases.Carry:
    return canvases.begin(to_mlx(tokens))


def _steps(model: DiffusionGemma, forward: Any, settings: Settings, draws: Replay, carry: canvases.Carry) -> list[Any]:
    return list(canvases.denoise(forward, model.embed_tokens, settings, draws, carry))


def _forced(
    model: DiffusionGemma, forward: Any, settings: Settings, draws: Replay, befores: list[Canvas]
) -> list[canvases.Step]:
    """As many steps as were recorded, whatever each decides about being the last; signal and history are the port's."""
    steps: list[canvases.Step] = []
    signal, history = None, ()
    for i, before in enumerate(befores):
        carry = canvases.Carry(before, signal, history)
        logits = forward(before.tokens, signal)
        step = canvases.advance(carry, logits, settings.steps - i, settings, draws, model.embed_tokens)
        steps.append(step)
        if step.sampled is not None and step.after is not None:
            signal = step.after.signal
            if signal is None:
                signal = canvases.signal(step.processed, step.sampled, model.embed_tokens)
            history = step.after.history
    return steps


def canvas_settings(model: DiffusionGemma, asked: dict[str, Any]) -> Settings:
    """What decides about a canvas, from the table's options."""
    names = ("sampler", "threshold", "temperature", "steps", "show")
    return resolve(Options(**{name: asked[name] for name in names}), model.config, asked["generation_config"])


def generate_image(
    model: DiffusionGemma,
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
    sight = Sight(to_mlx(ids[None]), to_mlx(types[None]), to_mlx(features))
    log: list[dict[str, Any]] = []
    with drawing(log):
        return finished(model, sight, json.loads(options.tobytes()), int(seed), log)


def generate(
    model: DiffusionGemma, at: At, *, ids: np.ndarray, options: np.ndarray, seed: np.ndarray, said: np.ndarray
) -> Trace:
    """A whole generation from a seed; of what the port refuses, only that it does."""
    log: list[dict[str, Any]] = []
    with drawing(log):
        try:
            return finished(model, ids.tolist(), json.loads(options.tobytes()), int(seed), log)
        except PortError:
            return refused()
