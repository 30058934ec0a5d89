"""One ordinary run of the reference, with every stage's border reported as it is crossed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from . import canvas_taps, cuts, direct, facts, vision_taps
from .reference import Reference
from .state import ABSENT, key_counts, mask_in, physical, visible, written_out
from .tensors import to_mlx, to_numpy
from .watch import Watch

Trace = dict[str, np.ndarray]
Emit = Callable[[str, str, Trace, Trace], None]


def run(reference: Reference, plan: dict[str, Any], emit: Emit) -> None:
    """Execute `plan` on the reference; `emit(stage, occurrence, ins, outs)` at each border, in order of execution."""
    emit("config", "checkpoint", {}, cuts.config(reference, {}))
    emit("weights", "checkpoint", {}, cuts.weights(reference, {}))
    for i, text in enumerate(plan["texts"]):
        takes = {"text": facts.as_bytes(text)}
        emit("tokenize", f"text={i}", takes, cuts.tokenize(reference, {}, **takes))
    for i, messages in enumerate(plan["chats"]):
        takes = {"messages": facts.as_json(messages)}
        emit("chat_template", f"chat={i}", takes, cuts.chat_template(reference, {}, **takes))
    if plan["ids"] is not None or plan.get("pictures"):
        _Passes(reference, emit).run(plan)
    direct.run(reference, plan, emit)
    for made in plan.get("made", ()):
        gives = getattr(cuts, made["stage"])(reference, made["at"], **made["ins"])
        emit(made["stage"], made["occurrence"], made["ins"], gives)
    for generation in plan.get("generations", ()):
        canvas_taps.run(reference, generation, generation["prefix"], emit)


class _Passes:
    """The passes of a run: encoder prefill, extensions, canvas passes; hooks that say which border is which."""

    def __init__(self, reference: Reference, emit: Emit) -> None:
        self.reference, self.model = reference, reference.model
        self.encoder, self.decoder = self.model.model.encoder, self.model.model.decoder
        self.emit = emit
        self.prefix = ""
        self.padding = np.zeros(ABSENT, bool)
        self.caches = self.model.make_cache()
        self.signal = "none"
        self.previous: mx.array | None = None
        self.canvas_ids = self.signal_tensor = self.features = np.zeros(ABSENT, np.int32)

    def run(self, plan: dict[str, Any]) -> None:
        if plan["padding"] is not None:
            self.padding = plan["padding"]
        with self._hooks():
            self._prefill(plan)
            for block, canvas in enumerate(plan["canvases"]):
                if block:
                    finished = plan["canvases"][block - 1]["finished"]
                    self._encode(f"canvas={block}/encoder", finished, np.zeros(ABSENT, bool))
                self.previous = None
                for number, step in zip(range(len(canvas["steps"]), 0, -1), canvas["steps"], strict=True):
                    self._denoise(f"canvas={block}/step={number}", step["ids"], step["signal"])

    def _prefill(self, plan: dict[str, Any]) -> None:
        if plan.get("pictures"):
            ids, pixels, types = vision_taps.prepare(self.reference, plan, self.emit)
            self._encode("encoder", ids, self.padding, pixel_values=pixels, mm_token_type_ids=types)
            return
        if plan["chunks"] is None:
            self._encode("encoder", plan["ids"], self.padding)
            return
        start = 0
        for i, size in enumerate(plan["chunks"]):
            self._encode(f"encoder/chunk={i}", plan["ids"][:, start : start + size], np.zeros(ABSENT, bool))
            start += size

    def _encode(self, prefix: str, ids: np.ndarray, padding: np.ndarray, **sight: Any) -> None:
        """One encoder pass; `sight` is what it is shown, `pixel_values` and `mm_token_type_ids`."""
        self.prefix = prefix
        before = self._states(physical, ids.shape[0])
        mask = to_mlx(padding) if padding.size else None
        h, _ = self.encoder(to_mlx(ids), attention_mask=mask, cache=self.caches, **sight)
        takes = {"ids": ids, "padding": padding, **before}
        if sight:
            takes |= {"types": to_numpy(sight["mm_token_type_ids"]), "features": self.features}
        stage = "image_encoder" if sight else "encoder"
        self.emit(stage, prefix, takes, {"h": to_numpy(h), **cuts.seen(self.caches)})

    def _denoise(self, prefix: str, ids: np.ndarray, signal: str) -> None:
        self.prefix, self.signal = prefix, signal
        logits, soft = None, None
        if signal == "logits":
            logits = self.previous
        elif signal != "none":
            soft = self._engine_soft(signal)
        attend = None
        if self.padding.size:
            attend = mx.concatenate([to_mlx(self.padding), mx.ones(ids.shape, dtype=mx.bool_)], axis=-1)
        output = self.model(
            canvas_ids=to_mlx(ids),
            cache=self.caches,
            self_conditioning_logits=logits,
            self_conditioning_embeddings=soft,
            decoder_attention_mask=attend,
        )
        self.previous = output.logits
        self.emit("logits", prefix, {"h": to_numpy(output.hidden_states[0])}, {"logits": to_numpy(output.logits)})

    def _engine_soft(self, formula: str) -> mx.array:
        soft = cuts.engine_soft(self.decoder, formula, self.previous)
        where = f"{self.prefix}/from={formula}"
        self.emit("soft_embeddings", where, {"logits": to_numpy(self.previous)}, {"soft": to_numpy(soft)})
        return soft

    def _states(self, read: Callable[..., Any], batch: int) -> Trace:
        """past_keys.*, past_values.* and cursors of all layers."""
        trace: Trace = {}
        cursors = []
        for i, (layer, cache) in enumerate(zip(self.model.layers, self.caches, strict=True)):
            attention = layer.self_attn
            like = mx.zeros((batch, attention.n_kv_heads, 0, attention.head_dim), attention.k_norm.weight.dtype)
            keys, values, cursor = read(cache, like) if read is physical else read(cache)
            trace[f"past_keys.{i}"], trace[f"past_values.{i}"] = keys, values
            cursors.append(cursor)
        return {**trace, "cursors": np.stack(cursors)}

    @contextmanager
    def _hooks(self) -> Iterator[None]:
        watch = Watch()
        self._watch_passes(watch)
        for i, (layer, cache) in enumerate(zip(self.model.layers, self.caches, strict=True)):
            self._watch_layer(watch, i, layer, cache)
        with watch:
            yield

    def _watch_passes(self, watch: Watch) -> None:
        def encoder_masks(args: Any, kwargs: Any, result: Any, offset: int) -> None:
            padding = to_numpy(args[2]) if args[2] is not None else np.zeros(ABSENT, bool)
            takes = {"tokens": cuts.count(args[0].shape[1]), "offset": cuts.count(offset), "padding": padding}
            gives = cuts.encoder_masks_by_kind(self.model.layers, self.caches, result, args[0].shape[1], offset)
            types = kwargs["mm_token_type_ids"]
            if types is None:
                self.emit("encoder_masks", self.prefix, takes, gives)
            else:
                self.emit("image_masks", self.prefix, {**takes, "types": to_numpy(types)}, gives)

        def conditioned(args: Any, _kwargs: Any, result: Any, _token: Any) -> None:
            embeds, signal = (to_numpy(x) for x in args)
            self.emit("embed", self.prefix, {"ids": self.canvas_ids}, {"h": embeds})
            if self.signal == "logits":
                where = f"{self.prefix}/from=logits"
                self.emit("soft_embeddings", where, {"logits": to_numpy(self.previous)}, {"soft": signal})
            self.emit("self_conditioning", self.prefix, {"embeds": embeds, "signal": signal}, {"h": to_numpy(result)})
            self.signal_tensor = signal

        def decoder_masks(args: Any, _kwargs: Any, result: Any, _token: Any) -> None:
            lengths = key_counts(self.model.layers, self.caches)
            tokens = args[0].shape[1]
            takes = {
                "tokens": cuts.count(tokens),
                "lengths": lengths,
                "offset": cuts.count(self.caches[0].offset),
                "padding": self.padding,
            }
            full, sliding = (int(n) + tokens for n in lengths)
            gives = {
                "full": written_out(result["full_attention"], tokens, full),
                "sliding": written_out(result["sliding_attention"], tokens, sliding),
            }
            self.emit("decoder_masks", self.prefix, takes, gives)

        def remember_ids(args: Any, _kwargs: Any) -> None:
            self.canvas_ids = to_numpy(args[0])

        def before_decoder(args: Any, _kwargs: Any) -> Trace:
            return self._states(visible, args[0].shape[0])

        def decoded(args: Any, _kwargs: Any, result: Any, past: Trace) -> None:
            takes = {"ids": to_numpy(args[0]), "signal": self.signal_tensor, "padding": self.padding, **past}
            self.emit("decoder", self.prefix, takes, {"h": to_numpy(result), **cuts.seen(self.caches)})

        vision_taps.watch_embedding(watch, self)
        watch.on(self.encoder, "_make_encoder_masks", before=lambda _a, _k: self.caches[0].offset, after=encoder_masks)
        watch.on(self.decoder.self_conditioning, after=conditioned)
        watch.on(self.decoder, "_make_decoder_masks", after=decoder_masks)
        watch.on(self.decoder, "_embed_canvas", before=remember_ids, after=lambda *_: None)
        watch.on(self.decoder, before=before_decoder, after=decoded)

    def _watch_layer(  # noqa: C901 -- one small hook a border, side by side
        self, watch: Watch, i: int, layer: Any, cache: Any
    ) -> None:
        attention = layer.self_attn
        held: dict[str, Any] = {}

        def here() -> str:
            return f"{self.prefix}/layer={i}"

        def state(decoder: bool, x: mx.array) -> Trace:
            like = mx.zeros((x.shape[0], attention.n_kv_heads, 0, attention.head_dim), x.dtype)
            keys, values, cursor = visible(cache) if decoder else physical(cache, like)
            return {"past_keys": keys, "past_values": values, "cursor": cursor}

        def before_attention(args: Any, kwargs: Any) -> Trace:
            held["rope"] = iter("qk")
            mask, kind = mask_in(args[1])
            past = state(kwargs["decoder"], args[0])
            return {"x": to_numpy(args[0]), "mask": mask, "mask_kind": kind, **past}

        def roped(args: Any, kwargs: Any, result: Any, _token: Any) -> None:
            takes = {"x": to_numpy(args[0]), "offset": cuts.count(kwargs["offset"])}
            self.emit("rope", f"{here()}/{next(held['rope'])}", takes, {"x": to_numpy(result)})

        def before_update(args: Any, _kwargs: Any) -> Trace:
            past = state(False, args[0])
            return {**past, "keys": to_numpy(args[0]), "values": to_numpy(args[1])}

        def updated(_args: Any, _kwargs: Any, result: Any, takes: Trace) -> None:
            self.emit("kv_cache", here(), takes, cuts.cache_gives(cache, *result))

        def routed(args: Any, _kwargs: Any, result: Any, _token: Any) -> None:
            self.emit("router", here(), {"h": to_numpy(args[0])}, {"scores": held["scores"]})
            self.emit("select_experts", here(), {"scores": held["scores"]}, cuts.by_expert(*result))

        def before_layer(args: Any, kwargs: Any) -> Trace:
            mask, kind = mask_in(args[1])
            past = state(kwargs["decoder"], args[0])
            return {"h": to_numpy(args[0]), "mask": mask, "mask_kind": kind, **past}

        def gave_h(stage: str) -> Callable[..., None]:
            def after(_args: Any, _kwargs: Any, result: Any, takes: Trace) -> None:
                self.emit(stage, here(), takes, {"h": to_numpy(result)})

            return after

        def before_experts(args: Any, _kwargs: Any) -> Trace:
            return {"x": to_numpy(args[0]), "experts": to_numpy(args[1]).astype(np.int32), "weights": to_numpy(args[2])}

        watch.on(attention.rope, after=roped)
        watch.on(cache, "update_and_fetch", before=before_update, after=updated)
        watch.on(attention, before=before_attention, after=gave_h("attention"))
        watch.on(layer.mlp, before=lambda args, _k: {"x": to_numpy(args[0])}, after=gave_h("mlp"))
        watch.on(layer.router.proj, after=lambda _a, _k, result, _t: held.update(scores=to_numpy(result)))
        watch.on(layer.router, after=routed)
        watch.on(layer.experts, before=before_experts, after=gave_h("moe"))
        watch.on(layer, before=before_layer, after=gave_h("layer"))
