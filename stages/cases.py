"""A case as the plan that both sides execute. Every draw is an input here, from one seed and one named generator."""

from typing import Any

import numpy as np

from . import pictures
from .made import made
from .masked import MaskedCase
from .masked import plan as masked_plan
from .spec import Case, Generation

Plan = dict[str, Any]


def plan(case: Case, config: dict[str, Any]) -> Plan:
    """What a run of `case` executes on a model with this config.json.

    Ids are uniform over the vocabulary; the prompt begins with the start token and holds an image token without an
    image, which the encoder is to read as padding.
    """
    if isinstance(case, MaskedCase):
        return masked_plan(case, config)
    text = config["text_config"]
    draws = np.random.Generator(np.random.PCG64(case.seed))
    ids = _ids(draws, text["vocab_size"], case.tokens)[:, : case.tokens]
    padding = None
    if case.padding:
        padding = np.arange(case.tokens)[None] >= case.padding
        ids = np.where(padding, ids, text["pad_token_id"]).astype(np.int32)
    if case.tokens:
        ids[0, case.padding : case.padding + 3 : 2] = text["bos_token_id"], config["image_token_id"]
    if case.ids:
        ids = np.array([case.ids], np.int32)
        padding = np.arange(len(case.ids))[None] >= case.padding if case.padding else None
    return {
        "texts": list(case.texts),
        "chats": [[{"role": role, "content": content} for role, content in chat] for chat in case.chats],
        "ids": ids if case.tokens or case.ids else None,
        "padding": padding,
        "chunks": list(case.chunks) or None,
        "canvases": [_canvas(draws, text["vocab_size"], case.canvas, signals) for signals in case.blocks],
        "direct_moe": [_direct(draws, text, pairs) for pairs in case.assignments],
        "made": made() if case.made else [],
        "generations": [_generation(case, i, one, text) for i, one in enumerate(case.generations)],
        "pictures": _files(case.pictures) if case.question else [],
        "question": case.question,
        "direct_masks": [_overlay(*call) for call in case.overlays],
    }


def _overlay(kinds: str, before: int, padded: int) -> Plan:
    """One call of the masks of pictures, for a batch of one."""
    tokens = len(kinds)
    padding = np.arange(before + tokens)[None] >= padded if padded else np.zeros(0, bool)
    types = np.array([["tiv".index(kind) for kind in kinds]], np.int32)
    return {
        "tokens": np.array(tokens, np.int32),
        "offset": np.array(before, np.int32),
        "padding": padding,
        "types": types,
    }


def _generation(case: Case, i: int, one: Generation, text: dict[str, Any]) -> Plan:
    """One run of the engine; occurrences begin with its number where a case has several."""
    ids = None
    if one.prompt is None:
        ids = np.random.Generator(np.random.PCG64(one.seed)).integers(0, text["vocab_size"], one.tokens, dtype=np.int32)
    prefix = f"run={i}/" if len(case.generations) > 1 else ""
    return {
        "prompt": one.prompt,
        "ids": ids,
        "options": dict(one.options),
        "seed": one.seed,
        "prefix": prefix,
        "pictures": [] if case.question else _files(case.pictures),
    }


def _files(named: tuple[tuple[str, int], ...]) -> list[Plan]:
    return [{"file": pictures.FILES[name](), "budget": np.array(budget, np.int32)} for name, budget in named]


def _ids(draws: np.random.Generator, vocabulary: int, count: int) -> Any:
    return draws.integers(0, vocabulary, (1, count), dtype=np.int32)


def _canvas(draws: np.random.Generator, vocabulary: int, length: int, signals: tuple[str, ...]) -> Plan:
    steps = [{"ids": _ids(draws, vocabulary, length), "signal": signal} for signal in signals]
    return {"steps": steps, "finished": _ids(draws, vocabulary, length)}


def _direct(draws: np.random.Generator, text: dict[str, Any], pairs: int) -> Plan:
    """One call of the experts with exactly `pairs` (token, expert) pairs, each token's experts all different."""
    each = next(k for k in (4, 3, 5, 7, 1) if pairs % k == 0)
    tokens, experts = pairs // each, text["num_experts"]
    chosen = np.stack([draws.permutation(experts)[:each] for _ in range(tokens)]).astype(np.int32)
    # Sums of integers over a power of two are the same normal-ish floats on every platform.
    x = draws.integers(-128, 128, (4, tokens, text["hidden_size"])).sum(0) / 128
    weights = draws.integers(1, 64, (tokens, each)) / 64
    return {
        "layer": 2,
        "assignments": pairs,
        "x": x.astype(np.float32),
        "experts": chosen,
        "weights": weights.astype(np.float32),
    }
