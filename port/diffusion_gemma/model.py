"""The model: an encoder pass fills the cache, a decoder pass denoises a canvas against it.

Legend: B batch, T tokens, C canvas tokens, D hidden, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import mlx.core as mx

from port.errors import PictureError, PortError

from . import config as configs
from .aliases import Mask
from .cache import Cache, GrowingCache, RotatingCache, StaticCache
from .conditioning import SelfConditioning, soft_from_logits
from .embed import Embedding
from .layers import Layer
from .masks import decoder_mask, encoder_mask
from .ops import RMSNorm
from .overlay import picture_blocks
from .prefix import Prefix
from .vision import VisionTower
from .weights import Scope, Weights


class DiffusionGemma:
    """Encoder and decoder share every weight but the scalar at the end of each layer.

    Args:
        weights: the checkpoint, of which every tensor is claimed here, and none is read.
        streaming: give each layer's memory back after its use, so that a pass needs one layer at a time.

    Raises:
        CheckpointError: a tensor is missing, left over, or not what the configuration demands.
    """

    def __init__(self, weights: Weights, *, streaming: bool = False) -> None:
        self.weights, self.config, self.streaming = weights, weights.config, streaming
        text = self.config.text_config
        decoder, encoder = Scope(weights, "model.decoder"), Scope(weights, "model.encoder")
        self.embed_tokens = Embedding(decoder / "embed_tokens", self.config)
        self.layers = [
            Layer(decoder / f"layers.{i}", encoder / f"language_model.layers.{i}", text, i)
            for i in range(text.num_hidden_layers)
        ]
        self.norm = RMSNorm(decoder / "norm", text.hidden_size, text.rms_norm_eps)
        self.self_conditioning = SelfConditioning(decoder / "self_conditioning", text)
        vision = self.config.vision_config
        self.vision_tower = None if vision is None else VisionTower(encoder, self.config, vision)
        weights.finish()

    def new_cache(self, capacity: int | None = None) -> list[Cache]:
        """An empty cache, one a layer.

        Args:
            capacity: tokens for a static cache to hold; None for caches that grow and rotate as needed.
        """
        windows = [layer.self_attn.window for layer in self.layers]
        if capacity is not None:
            return [StaticCache(capacity, window) for window in windows]
        return [GrowingCache() if window is None else RotatingCache(window) for window in windows]

    def _finish(self, layer: Layer, h: mx.array) -> None:
        if self.streaming:
            mx.eval(h)
            layer.release()

    def look(self, pictures: Iterable[mx.array]) -> mx.array:
        """Prepared pictures, each [1, 3, H, W], to the soft tokens of all in order, floats [1, N, D].

        Raises:
            PictureError: the model has no vision tower, or a picture more patches than it has room for.
        """
        if self.vision_tower is None:
            raise PictureError(
                str(self.weights.directory),
                found="the model has no vision tower",
                expected="a vision_config in config.json, and its weights",
                mend="leave the pictures out, or choose a checkpoint that sees",
            )
        return self.vision_tower(pictures)

    def encode(
        self,
        ids_BT: mx.array,
        cache: Sequence[Cache],
        padding_BP: mx.array | None = None,
        features_BND: mx.array | None = None,
        types_BT: mx.array | None = None,
    ) -> mx.array:
        """One pass over prompt tokens, or over a finished canvas, behind whatever the cache holds.

        Args:
            ids_BT: integers.
            cache: written.
            padding_BP: booleans, true for real tokens, from position 0 on; None when all are.
            features_BND: soft tokens for the image tokens among the ids, as `look` gives them; None without pictures.
            types_BT: integers, 1 for image tokens; these see all of their picture. None without pictures.

        Returns:
            floats [B, T, D] after the final norm.

        Raises:
            PictureError: there are more or fewer soft tokens than image tokens.
        """
        embed = self.embed_tokens
        h_BTD = embed.prompt(ids_BT) if features_BND is None else embed.merged(ids_BT, features_BND)
        masks = self.encoder_masks(ids_BT.shape[1], cache[0].offset, padding_BP, types_BT)
        for layer, store in zip(self.layers, cache, strict=True):
            h_BTD = layer.encode(h_BTD, masks[layer.self_attn.window], store)
            self._finish(layer, h_BTD)
        return self.norm(h_BTD)

    def prefill(self, ids_BT: mx.array, cache: Sequence[Cache], chunks: Iterable[int]) -> mx.array:
        """The prompt in several passes, to bound memory; the cache ends as after one.

        Args:
            ids_BT: integers, of which none is padding.
            cache: written.
            chunks: tokens of each pass, T in all.

        Returns:
            floats [B, T, D] after the final norm.

        Raises:
            PortError: the chunks do not add up to the prompt.
        """
        sizes = list(chunks)
        if sum(sizes) != ids_BT.shape[1] or min(sizes, default=0) < 1:
            raise PortError(
                "prefill",
                found=f"chunks of {sizes} tokens for a prompt of {ids_BT.shape[1]}",
                expected="positive sizes that add up to the prompt",
                mend="let the last chunk be what remains",
            )
        parts, start = [], 0
        for tokens in sizes:
            parts.append(self.encode(ids_BT[:, start : start + tokens], cache))
            mx.eval(parts[-1])
            start += tokens
        return mx.concatenate(parts, axis=1)

    def encoder_masks(
        self, tokens: int, offset: int, padding_BP: mx.array | None, types_BT: mx.array | None = None
    ) -> dict[int | None, Mask]:
        """The masks of an encoder pass by the window of the layers that they are for."""
        both_ways = self.config.text_config.use_bidirectional_attention == "vision"
        # Behind other tokens there are no pictures: a canvas that writes image tokens means words by them.
        looks = both_ways and types_BT is not None and tokens > 1 and offset == 0
        pictures_BTT = picture_blocks(types_BT) if looks else None
        windows = {layer.self_attn.window for layer in self.layers}
        return {window: encoder_mask(tokens, offset, window, padding_BP, pictures_BTT) for window in windows}

    def decoder_masks(self, canvas: int, cache: Sequence[Cache], padding_BP: mx.array | None) -> dict[int | None, Mask]:
        """The masks of a canvas pass by the window of the layers that they are for."""
        masks: dict[int | None, Mask] = {}
        for layer, store in zip(self.layers, cache, strict=True):
            window = layer.self_attn.window
            if window not in masks:
                past = store.seen()
                cached = 0 if past is None else past[0].shape[2]
                masks[window] = decoder_mask(canvas, cached, store.offset, window, padding_BP)
        return masks

    def decode(
        self,
        ids_BC: mx.array,
        cache: Sequence[Cache],
        signal_BCD: mx.array | None = None,
        padding_BP: mx.array | None = None,
    ) -> mx.array:
        """One pass over the canvas; the cache is only read.

        Args:
            ids_BC: integers.
            cache: the prompt, and the canvases finished before this one.
            signal_BCD: average embeddings of the step before; None at the first, which counts as zeros.
            padding_BP: booleans, true for real tokens, over the prompt; None when all are.

        Returns:
            floats [B, C, D] after the final norm.
        """
        return self.denoise(ids_BC, self.prefix(ids_BC.shape[1], cache, padding_BP), signal_BCD)

    def prefix(self, canvas: int, cache: Sequence[Cache], padding_BP: mx.array | None = None) -> Prefix:
        """The cache as canvas passes of `canvas` tokens read it."""
        masks = self.decoder_masks(canvas, cache, padding_BP)
        by_layer = [masks[layer.self_attn.window] for layer in self.layers]
        return Prefix([store.seen() for store in cache], by_layer, cache[0].offset)

    def denoise(self, ids_BC: mx.array, prefix: Prefix, signal_BCD: mx.array | None = None) -> mx.array:
        """`decode` with what it reads of the cache got ready: floats [B, C, D]."""
        embeds_BCD = self.embed_tokens.canvas(ids_BC)
        signal_BCD = mx.zeros_like(embeds_BCD) if signal_BCD is None else signal_BCD.astype(embeds_BCD.dtype)
        h_BCD = self.self_conditioning(embeds_BCD, signal_BCD)
        for layer, past, mask in zip(self.layers, prefix.pasts, prefix.masks, strict=True):
            h_BCD = layer.decode(h_BCD, mask, past, prefix.offset)
            self._finish(layer, h_BCD)
        return self.norm(h_BCD)

    def signal(self, logits_BCV: mx.array) -> mx.array:
        """The next step's signal from this step's logits: float32 [B, C, V] to floats [B, C, D]."""
        return soft_from_logits(self.embed_tokens, logits_BCV, self.norm.dtype)

    def logits(self, h_BCD: mx.array) -> mx.array:
        """Hidden states [B, C, D] to capped logits, float32 [B, C, V]."""
        return self.embed_tokens.head(h_BCD)


def load(directory: Path, compute: str = "bfloat16", *, streaming: bool = False) -> DiffusionGemma:
    """Open a checkpoint. Files and names are checked now, values when they are first used.

    Args:
        directory: holds config.json and safetensors.
        compute: "bfloat16" or "float32", the dtype of activations and of every floating parameter.
        streaming: hold one layer in memory at a time.

    Raises:
        ConfigError: `config.json` is refused.
        CheckpointError: a file or a tensor is.
    """
    return DiffusionGemma(Weights(directory, configs.read(directory), compute), streaming=streaming)
