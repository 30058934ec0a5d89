"""Pixels to patch embeddings, with each patch's place added.

Legend: B batch, C colours, p pixels a side of a patch, P patches, W the tower's hidden size, S places of the table.
"""

import mlx.core as mx

from .config import VisionConfig
from .grid import Grid
from .linear import Linear
from .weights import Scope


def patchify(pixels_BCHW: mx.array, size: int) -> mx.array:
    """Cut into patches in reading order, each as rows of pixels, colours last: floats [B, P, p * p * C]."""
    batch, colours, height, width = pixels_BCHW.shape
    rows, columns = height // size, width // size
    cut = pixels_BCHW.reshape(batch, colours, rows, size, columns, size).transpose(0, 2, 4, 3, 5, 1)
    return cut.reshape(batch, rows * columns, size * size * colours)


def centred(x: mx.array) -> mx.array:
    """Intensities from [0, 1] to [-1, 1], in the dtype they come in."""
    return 2 * (x - 0.5)


class PatchEmbedding:
    """A projection of every patch, and two tables of places: one of columns, one of rows.

    Args:
        scope: `...vision_tower.patch_embedder`.
        vision: the configuration.
    """

    def __init__(self, scope: Scope, vision: VisionConfig) -> None:
        hidden, places = vision.hidden_size, vision.position_embedding_size
        self._size = vision.patch_size
        self.input_proj = Linear(scope / "input_proj", 3 * self._size**2, hidden)
        self.position_embedding_table = scope.param("position_embedding_table", (2, places, hidden))

    @property
    def dtype(self) -> mx.Dtype:
        """The dtype of the tower's activations."""
        return self.position_embedding_table.array.dtype

    def __call__(self, pixels_BCHW: mx.array, grid: Grid) -> mx.array:
        """Floats [B, 3, H, W] in [0, 1] to [B, P, W]."""
        return self.project(centred(patchify(pixels_BCHW, self._size))) + self.places(grid)

    def project(self, patches_BPI: mx.array) -> mx.array:
        """Floats [B, P, 3 * p * p] to [B, P, W].

        The reference casts patches to the dtype of the weight. Packed, that is uint32: fractions are cut off, white
        becomes 1, black what the backend makes of -1 (4294967295 on x86, 0 on Arm), all else 0. Checkpoints that pack
        this projection were trained with it.
        """
        return self.input_proj(patches_BPI.astype(mx.uint32 if self.input_proj.packed else self.dtype))

    def places(self, grid: Grid) -> mx.array:
        """Column's plus row's embedding of each patch: floats [P, W]; beyond the tables there is none."""
        columns, rows = (
            self._row(table, place)
            for table, place in zip(self.position_embedding_table.array, grid.places, strict=True)
        )
        return columns + rows

    @staticmethod
    def _row(table_SW: mx.array, place_P: mx.array) -> mx.array:
        last = table_SW.shape[0] - 1
        return mx.where((place_P <= last)[:, None], table_SW[mx.minimum(place_P, last)], mx.array(0.0, table_SW.dtype))
