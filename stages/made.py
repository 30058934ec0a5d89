"""Inputs handed directly to a stage that no run comes by by chance: decisions exactly at their thresholds above all."""

import json
from typing import Any

import numpy as np

from . import pictures, sides

Made = tuple[str, str, dict[str, Any]]

ONE = np.float32(1)
HALF = np.float32(0.5)


def made() -> list[dict[str, Any]]:
    """Each with its stage, occurrence (as text, and as `at` its parts) and inputs."""
    every = [*_pictures(), *_temperature(), *_measured(), *_confidence(), *_entropy()]
    every += [*_renoise(), *_stopping(), *_steps()]
    return [{"stage": name, "occurrence": where, "at": sides.parse(where), "ins": ins} for name, where, ins in every]


def _pictures() -> list[Made]:
    """Five times too large along both axes: a resampler that first averages whole pixels gives others."""
    file = pictures.png(pictures.shapes(260, 520)[..., 0], 0)
    return [("image_preprocess", "made/large", {"file": file, "budget": np.array(2, np.int32)})]


def _temperature() -> list[Made]:
    """Steps of 48 whose temperature single precision rounds otherwise, and one where it does not."""
    logits = np.array([[[-29.5, -3.25, -0.1, 0.0, 0.7, 1.0, 11.0, 29.9]]], np.float32)
    return [
        (
            "temperature",
            f"made/step={step}",
            {
                "logits": logits,
                "step": np.array(step, np.int32),
                "steps": np.array(48, np.int32),
                "schedule": np.array([0.4, 0.8], np.float64),
            },
        )
        for step in (48, 46, 22, 2)
    ]


def _measured() -> list[Made]:
    """Entropy by either formula: alone on the last step, together with the probabilities before it."""
    logits = np.zeros((1, 3, 8), np.float32)
    logits[0, 1] = np.arange(8) / 4
    logits[0, 2, 6] = 9.0
    return [("token_entropy", f"made/step={step}", {"processed": logits}) for step in (2, 1)]


def _confidence() -> list[Made]:
    just = np.nextafter
    rows = {
        # Equal to the threshold is enough; one ULP below is not.
        "equal": ([0.9, float(just(np.float32(0.9), ONE)), float(just(np.float32(0.9), -ONE)), 0.1], [1, 1, 1, 1], 0.9),
        "exactly": ([0.5, float(just(HALF, -ONE)), float(just(HALF, ONE)), 0.0], [1, 1, 1, 1], 0.5),
        # None is sure enough: the surest hidden one, the first of equals, never one that is revealed.
        "forced": ([0.2, 0.7, 0.7, 0.8], [1, 1, 1, 0], 0.9),
        "tied": ([0.3, 0.3, 0.3, 0.3], [0, 1, 1, 1], 0.9),
        "revealed": ([0.99, 0.2, 0.99, 0.1], [0, 1, 0, 1], 0.9),
        "all": ([0.1, 0.2, 0.3, 0.4], [0, 0, 0, 0], 0.9),
        "zero": ([0.0, 0.2, 0.3, 0.4], [1, 1, 0, 1], 0.0),
        "one": ([1.0, float(just(ONE, -ONE)), 0.3, 0.4], [1, 1, 1, 1], 1.0),
    }
    found = []
    for last in (False, True):
        for name, (confidence, hidden, threshold) in rows.items():
            ins = {
                "confidence": np.array([confidence], np.float32),
                "unrevealed": np.array([hidden], bool),
                "threshold": np.array(threshold, np.float64),
                "last": np.array(last),
            }
            found.append(("accept_confidence", f"made/{name}{'/last' if last else ''}", ins))
    return found


def _entropy() -> list[Made]:
    up = float(np.nextafter(np.float32(0.0625), ONE))
    rows = {
        # Before the fourth stand 0.03125 + 0.03125: exactly the bound, which still accepts.
        "equal": ([0.5, 0.03125, 0.25, 0.03125, 0.75], 0.0625),
        "above": ([0.5, up, 0.25, 0.0, 0.75], 0.0625),
        "tied": ([0.05, 0.05, 0.05, 0.05, 0.05], 0.1),
        "one": ([0.3, 0.2, 0.9, 0.4, 0.7], 0.0),
        "zeros": ([0.0, 0.0, 0.4, 0.0, 0.2], 0.0),
        "rounding": ([1e-8, 1.0, 1e-8, 3e-8, 1.0], 0.1),
        "endless": ([5.0, 6.0, 4.0, 6.5, 6.5], float("inf")),
        "steady": ([0.1, 0.3, 0.2, 0.4, 0.6], 0.3),
    }
    return [
        ("accept_entropy", f"made/{name}", {"entropy": np.array([row], np.float32), "bound": np.array(bound)})
        for name, (row, bound) in rows.items()
    ]


def _renoise() -> list[Made]:
    draws = np.random.Generator(np.random.PCG64(7))
    tokens, noise = (draws.integers(0, 704, (1, 6), dtype=np.int32) for _ in "ab")
    rows = {"some": [1, 0, 1, 1, 0, 0], "none": [0] * 6, "all": [1] * 6}
    return [
        ("renoise", f"made/{name}", {"keep": np.array([keep], bool), "tokens": tokens, "noise": noise})
        for name, keep in rows.items()
    ]


def _stopping() -> list[Made]:
    sure = np.zeros((1, 3, 8), np.float32)
    sure[0, [0, 1, 2], [4, 2, 7]] = 40.0
    even = np.zeros((1, 3, 8), np.float32)  # entropy ln 8 everywhere
    mixed = sure.copy()
    mixed[0, 0] = 0.0  # mean ln 8 / 3: less than the largest entropy, more than the smallest
    certain = 25 * sure  # exp(-1000) is 0, and so is the entropy, on every backend
    best = np.array([[4, 2, 7]], np.int32)
    other = np.array([[4, 2, 6]], np.int32)
    log8 = float(np.float32(np.log(8)))
    rows: dict[str, tuple[Any, list[Any], int, float]] = {
        "absent": (sure, [best], -1, 0.005),
        "first": (sure, [], 1, 0.005),
        "stable": (sure, [best], 1, 0.005),
        "moved": (sure, [other], 1, 0.005),
        "moved-before": (sure, [other, best], 2, 0.005),
        "twice": (sure, [best, best], 2, 0.005),
        "short": (sure, [best], 2, 0.005),
        "none-needed": (sure, [], 0, 0.005),
        "unsure": (even, [best], 1, 0.005),
        "unsure-below": (even, [best], 1, log8 + 1e-3),
        "certain": (sure, [best], 1, 0.0),
        "mean-below": (mixed, [best], 1, 1.0),
        "mean-above": (mixed, [best], 1, 0.5),
        "equal": (certain, [best], 1, 0.0),
        "equal-above": (certain, [best], 1, 1e-9),
    }
    found = []
    for name, (processed, history, stability, confidence) in rows.items():
        ins = {
            "argmax": best,
            "processed": processed,
            "history": np.stack(history) if history else np.zeros((0, 1, 3), np.int32),
            "stability": np.array(stability, np.int32),
            "confidence": np.array(confidence, np.float64),
        }
        found.append(("stopping", f"made/{name}", ins))
    return found


def _steps() -> list[Made]:
    """Tied logits, and a canvas of which a part is revealed, for both samplers."""
    processed = np.zeros((1, 4, 8), np.float32)
    processed[0, 0, [2, 5]] = 3.0  # tied best tokens
    processed[0, 1, 6] = 9.0
    processed[0, 2, [1, 3]] = 3.0  # tied with position 0 in entropy and in confidence
    canvas, draft = np.array([[7, 6, 5, 4]], np.int32), np.array([[1, 6, 2, 3]], np.int32)
    noise, drawn = np.array([[0, 1, 2, 3]], np.int32), np.array([[5, 6, 3, 0]], np.int32)
    found = []
    for sampler, bound in (("confidence-threshold", 0.9), ("confidence-threshold", 0.1), ("entropy-bound", 0.5)):
        for last in (False, True):
            for choice in (drawn, np.zeros(0, np.int32)):
                asked = {"sampler": sampler, "last": last, "threshold": bound, "bound": bound}
                ins = {
                    "processed": processed,
                    "canvas": canvas,
                    "draft": draft,
                    "revealed": np.array([[False, True, False, False]]),
                    "noise": noise,
                    "drawn": choice,
                    "options": np.frombuffer(json.dumps(asked).encode(), np.uint8),
                }
                name = f"{sampler}/{bound}/{'last' if last else 'inner'}/{'drawn' if choice.size else 'best'}"
                found.append(("sampler_step", f"made/{name}", ins))
    return found
