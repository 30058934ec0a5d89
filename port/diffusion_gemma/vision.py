"""The vision tower: pixels of one picture to soft tokens in the language model's width.

Legend: B batch, P patches, N soft tokens, W the tower's hidden size, D the language model's.
"""

from collections.abc import Iterable

import mlx.core as mx

from .config import ModelConfig, VisionConfig
from .grid import Grid
from .linear import Linear
from .ops import unit_rms
from .patches import PatchEmbedding
from .pooling import pool
from .vision_layer import VisionLayer
from .vision_rope import PlaneRope
from .weights import Scope


class VisionTower:
    """Patch embedding, layers, pooling, standardization and the projection into the language model's width.

    Args:
        scope: `model.encoder`.
        config: the configuration, with a `vision_config`.
        vision: that section.
    """

    def __init__(self, scope: Scope, config: ModelConfig, vision: VisionConfig) -> None:
        tower, hidden = scope / "vision_tower", vision.hidden_size
        self._vision = vision
        self._room = vision.default_output_length * vision.pooling_kernel_size**2
        self.patch_embedder = PatchEmbedding(tower / "patch_embedder", vision)
        self.layers = [VisionLayer(tower / f"encoder.layers.{i}", vision) for i in range(vision.num_hidden_layers)]
        self.std_bias = tower.param("std_bias", (hidden,)) if vision.standardize else None
        self.std_scale = tower.param("std_scale", (hidden,)) if vision.standardize else None
        projection = scope / "embed_vision" / "embedding_projection"
        self.embedding_projection = Linear(projection, hidden, config.text_config.hidden_size)

    def grid(self, rows: int, columns: int) -> Grid:
        """Patches of a picture.

        Raises:
            PictureError: more than the tower has room for.
        """
        return Grid(rows, columns, self._room)

    def grid_of(self, pixels_BCHW: mx.array) -> Grid:
        """Patches of pictures of one size, floats [B, 3, H, W]."""
        size = self._vision.patch_size
        return self.grid(pixels_BCHW.shape[2] // size, pixels_BCHW.shape[3] // size)

    def rope(self, grid: Grid) -> PlaneRope:
        """How queries and keys of a picture turn."""
        base = (self._vision.rope_parameters or {})["rope_theta"]
        return PlaneRope(grid, self._vision.head_dim, base, self.patch_embedder.dtype)

    def features(self, pixels_BCHW: mx.array) -> mx.array:
        """Pictures of one size, floats [B, 3, H, W] in [0, 1], to soft tokens [B, N, W]."""
        grid = self.grid_of(pixels_BCHW)
        h_BPW, rope = self.patch_embedder(pixels_BCHW, grid), self.rope(grid)
        for layer in self.layers:
            h_BPW = layer(h_BPW, grid, rope)
        return self.standardize(pool(h_BPW, grid, self._vision.pooling_kernel_size))

    def standardize(self, features_BNW: mx.array) -> mx.array:
        """Subtract the mean, then scale, where the configuration says so; same shape and dtype."""
        if self.std_bias is None or self.std_scale is None:
            return features_BNW
        return (features_BNW - self.std_bias.array) * self.std_scale.array

    def project(self, features_BNW: mx.array) -> mx.array:
        """Floats [B, N, W] to [B, N, D]."""
        return self.embedding_projection(unit_rms(features_BNW, self._vision.rms_norm_eps))

    def __call__(self, pictures: Iterable[mx.array]) -> mx.array:
        """Pictures of any sizes, each [1, 3, H, W], to the soft tokens of all, one after the other: [1, N, D]."""
        return self.project(mx.concatenate([self.features(pixels) for pixels in pictures], axis=1))
