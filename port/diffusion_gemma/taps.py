"""One ordinary run of the port, with every stage's border reported as it is crossed.

The product is not instrumented: for the length of a `with` block its classes' methods are wrapped, then put back.
"""

import json
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from port.crossed_borders import Crossings, Emit, Found
from port.observe import Observer, wrapped

from . import canvas_taps, cuts, vision_taps
from .aliases import Pair
from .attention import Attention
from .borders import (
    ABSENT,
    buffers,
    by_id,
    cache_gives,
    cursor,
    given,
    mask_in,
    number,
    optional,
    shown,
    text_bytes,
    to_mlx,
    to_numpy,
    visible,
    written_out,
)
from .cache import Cache, GrowingCache, RotatingCache
from .conditioning import SelfConditioning, confident_probabilities, entropic_probabilities, soft_from_table
from .embed import Embedding
from .layers import Layer
from .mlp import MLP
from .model import DiffusionGemma
from .moe import Experts, Router
from .rope import Rope
from .vision_cuts import masks_by_kind


def run(model: DiffusionGemma, plan: dict[str, Any], emit: Emit) -> None:
    """Execute `plan`, calling `emit(stage, occurrence, ins, outs)` at each border in order of execution."""
    emit("config", "checkpoint", {}, cuts.config(model, {}))
    emit("weights", "checkpoint", {}, cuts.weights(model, {}))
    for i, text in enumerate(plan["texts"]):
        ins = {"text": text_bytes(text)}
        emit("tokenize", f"text={i}", ins, cuts.tokenize(model, {}, **ins))
    for i, messages in enumerate(plan["chats"]):
        ins = {"messages": text_bytes(json.dumps(messages, ensure_ascii=False))}
        emit("chat_template", f"chat={i}", ins, cuts.chat_template(model, {}, **ins))
    if plan["ids"] is not None or plan.get("pictures"):
        _Run(model, emit).whole(plan)
    for direct in plan["direct_moe"]:
        dtype = model.norm.dtype
        ins = {name: to_numpy(mx.array(direct[name]).astype(dtype)) for name in ("x", "weights")}
        ins["experts"] = direct["experts"]
        where = f"layer={direct['layer']}/assignments={direct['assignments']}"
        emit("moe", f"direct/{where}", ins, cuts.moe(model, {"layer": direct["layer"]}, **ins))
    for i, ins in enumerate(plan.get("direct_masks", ())):
        emit("image_masks", f"direct={i}", ins, cuts.image_masks(model, {}, **ins))
    for made in plan.get("made", ()):
        gives = getattr(cuts, made["stage"])(model, made["at"], **made["ins"])
        emit(made["stage"], made["occurrence"], made["ins"], gives)
    for planned in plan.get("generations", ()):
        canvas_taps.run(model, planned, emit)


class _Run:
    """The passes of a plan, and what is known of the pass under way."""

    def __init__(self, model: DiffusionGemma, emit: Emit) -> None:
        self.model, self.emit = model, Crossings(emit)
        self.caches = model.new_cache()
        self.prefix = ""
        self.layer = 0
        self.turned = iter("qk")
        self.padding = np.zeros(ABSENT, bool)

    def whole(self, plan: dict[str, Any]) -> None:
        """Prefill, then each canvas: extend the cache by the one before it, then its steps, the last numbered 1."""
        with self.emit, wrapped(self._observers()):
            if plan.get("pictures"):
                ids, pixels, types = vision_taps.prepare(self.model, plan, self.emit)
                self.prefix = "encoder"
                self._encode("encoder", ids, self.padding, self.model.look(pixels), types)
            elif plan["chunks"] is None:
                padding = self.padding if plan["padding"] is None else plan["padding"]
                self._encode("encoder", plan["ids"], padding)
                self.padding = padding
            else:
                stops = np.cumsum(plan["chunks"])[:-1]
                for i, part in enumerate(np.split(plan["ids"], stops, axis=1)):
                    self._encode(f"encoder/chunk={i}", part, self.padding)
            for block, canvas in enumerate(plan["canvases"]):
                if block:
                    finished = plan["canvases"][block - 1]["finished"]
                    self._encode(f"canvas={block}/encoder", finished, np.zeros(ABSENT, bool))
                logits: mx.array | None = None
                for number_, step in zip(range(len(canvas["steps"]), 0, -1), canvas["steps"], strict=True):
                    logits = self._denoise(f"canvas={block}/step={number_}", step, logits)

    def _encode(self, prefix: str, ids: np.ndarray, padding: np.ndarray, *sight: mx.array) -> None:
        """One encoder pass; `sight` is what a prompt with pictures adds, soft tokens and token types."""
        self.prefix = prefix
        ins = {"ids": ids, "padding": padding, **self._states(lambda i: self._buffers(i, ids.shape[0]))}
        ins |= dict(zip(("features", "types"), sight, strict=False))
        h = self.model.encode(to_mlx(ids), self.caches, optional(padding), *sight)
        self.emit("image_encoder" if sight else "encoder", prefix, ins, {"h": h, **shown(self.caches)})
        self.emit.hand_on()

    def _denoise(self, prefix: str, step: dict[str, Any], logits: mx.array | None) -> mx.array:
        self.prefix = prefix
        signal = None if step["signal"] == "none" else self._signal(step["signal"], logits)
        ids = to_mlx(step["ids"])
        past = self._states(lambda i: visible(self.caches[i]))
        h = self.model.decode(ids, self.caches, signal, optional(self.padding))
        signal = mx.zeros_like(h) if signal is None else signal
        ins = {"ids": step["ids"], "signal": signal, "padding": self.padding, **past}
        self.emit("decoder", prefix, ins, {"h": h, **shown(self.caches)})
        logits = self.model.logits(h)
        self.emit("logits", prefix, {"h": h}, {"logits": logits})
        self.emit.hand_on()
        return logits

    def _signal(self, kind: str, logits: mx.array | None) -> mx.array:
        if logits is None:
            raise ValueError(f"{self.prefix} asks for a signal from {kind}, and no step came before it")
        if kind == "logits":
            soft = self.model.signal(logits)
        else:
            formula = {"confidence": confident_probabilities, "entropy": entropic_probabilities}[kind]
            embedding = self.model.embed_tokens
            soft = soft_from_table(formula(logits), embedding.table.dense(), embedding.scale)
        self.emit("soft_embeddings", f"{self.prefix}/from={kind}", {"logits": logits}, {"soft": soft})
        return soft

    def _buffers(self, i: int, batch: int) -> Pair:
        text = self.model.config.text_config
        return buffers(self.caches[i], (batch, text.kv_heads(i), 0, text.head_size(i)), self.model.norm.dtype)

    def _states(self, read: Callable[[int], Pair]) -> Found:
        """past_keys.*, past_values.* and cursors of all layers."""
        states: dict[str, Any] = {"cursors": np.stack([cursor(cache) for cache in self.caches])}
        for i in range(len(self.caches)):
            states[f"past_keys.{i}"], states[f"past_values.{i}"] = read(i)
        return states

    def _state(self, x: mx.array) -> Found:
        """past_keys, past_values and cursor of the layer under way."""
        cache = self.caches[self.layer]
        keys, values = self._buffers(self.layer, x.shape[0]) if "encoder" in self.prefix else visible(cache)
        return {"past_keys": keys, "past_values": values, "cursor": cursor(cache)}

    def _observers(self) -> dict[tuple[type, str], Observer]:
        """Who watches what; layers run one after the other, so the one under way is known by its place in the model."""
        numbers = {id(layer): i for i, layer in enumerate(self.model.layers)}

        def here() -> str:
            return f"{self.prefix}/layer={self.layer}"

        def plain(stage: str, gives: str, *takes: str) -> Observer:
            def observer(_this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
                result = call()
                where = here() if stage in {"mlp", "router"} else self.prefix
                self.emit(stage, where, dict(zip(takes, args, strict=True)), {gives: result})
                return result

            return observer

        def block(stage: str, takes: str) -> Observer:
            def observer(this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
                self.layer, self.turned = numbers.get(id(this), self.layer), iter("qk")
                ins = {takes: args[0], **mask_in(args[1]), **self._state(args[0])}
                result = call()
                self.emit(stage, here(), ins, {"h": result})
                return result

            return observer

        def rope(_this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
            result = call()
            ins = {"x": args[0], "offset": number(args[1])}
            self.emit("rope", f"{here()}/{next(self.turned)}", ins, {"x": result})
            return result

        def update(this: Cache, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
            ins = {**self._state(args[0]), "keys": args[0], "values": args[1]}
            result = call()
            self.emit("kv_cache", here(), ins, cache_gives(this, *result))
            return result

        def select(_this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
            result = call()
            chosen = dict(zip(("experts", "weights"), result, strict=True))
            self.emit("select_experts", here(), {"scores": args[0]}, chosen, by_id)
            return result

        def experts(_this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
            result = call()
            ins = {"x": args[0], "experts": args[1].astype(mx.int32), "weights": args[2]}
            self.emit("moe", here(), ins, {"h": result})
            return result

        return {
            (DiffusionGemma, "encoder_masks"): self._encoder_masks,
            (DiffusionGemma, "decoder_masks"): self._decoder_masks,
            (Embedding, "prompt"): plain("embed", "h", "ids"),
            (Embedding, "canvas"): self._embed_canvas,
            (SelfConditioning, "__call__"): plain("self_conditioning", "h", "embeds", "signal"),
            (Layer, "encode"): block("layer", "h"),
            (Layer, "decode"): block("layer", "h"),
            (Attention, "encode"): block("attention", "x"),
            (Attention, "decode"): block("attention", "x"),
            (Rope, "__call__"): rope,
            (GrowingCache, "update"): update,
            (RotatingCache, "update"): update,
            (MLP, "__call__"): plain("mlp", "h", "x"),
            (Router, "scores"): plain("router", "scores", "h"),
            (Router, "select"): select,
            (Experts, "__call__"): experts,
            **vision_taps.observers(self.model, self.emit, lambda: self.prefix),
        }

    def _embed_canvas(self, _this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        result = call()
        if "encoder" not in self.prefix:  # a prompt's embedding is reported whole
            self.emit("embed", self.prefix, {"ids": args[0]}, {"h": result})
        return result

    def _encoder_masks(self, _this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        masks = call()
        tokens, offset, padding, types = args
        ins = {"tokens": number(tokens), "offset": number(offset), "padding": given(padding)}
        ins |= {} if types is None else {"types": types}
        outs = masks_by_kind(masks, tokens, offset)
        self.emit("encoder_masks" if types is None else "image_masks", self.prefix, ins, outs)
        return masks

    def _decoder_masks(self, _this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        masks = call()
        canvas, caches, padding = args
        lengths: dict[int | None, int] = {}
        for layer, cache in zip(self.model.layers, caches, strict=True):
            lengths.setdefault(layer.self_attn.window, visible(cache)[0].shape[2])
        kinds = {"full" if window is None else "sliding": window for window in sorted(masks, key=lambda w: w or 0)}
        ins = {
            "tokens": number(canvas),
            "lengths": np.array([lengths[window] for window in kinds.values()], np.int32),
            "offset": number(caches[0].offset),
            "padding": given(padding),
        }
        outs = {name: written_out(masks[window], canvas, lengths[window] + canvas) for name, window in kinds.items()}
        self.emit("decoder_masks", self.prefix, ins, outs)
        return masks
