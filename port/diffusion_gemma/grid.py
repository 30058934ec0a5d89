"""The patches of one picture: how many, where each stands, and the places left over in the tower.

Legend: P patches, K patches that the tower has room for, B batch, d half the channels that one axis turns.
"""

from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx

from port.errors import PictureError

HIDDEN = -1e4  # added to the scores of padding: finite, as in the reference, and enough to make their weights 0.0


@dataclass(frozen=True)
class Grid:
    """Patches in reading order.

    Attributes:
        rows: patches from top to bottom.
        columns: patches from left to right.
        room: K, the patches that attention is laid out for.
    """

    rows: int
    columns: int
    room: int

    def __post_init__(self) -> None:
        if self.patches > self.room:
            raise PictureError(
                "vision tower",
                found=f"a picture of {self.rows} x {self.columns} patches",
                expected=f"at most {self.room}: the tower gives vision_config.default_output_length soft tokens",
                mend="choose a smaller budget of soft tokens, 280 for published checkpoints",
            )

    @property
    def patches(self) -> int:
        """P."""
        return self.rows * self.columns

    @cached_property
    def places(self) -> tuple[mx.array, mx.array]:
        """Column and row of each patch, int32 [P] each."""
        ids = mx.arange(self.patches)
        return ids % self.columns, ids // self.columns

    def mask(self, dtype: mx.Dtype) -> mx.array:
        """What to add to scores so that nobody looks at padding: floats [1, 1, P, K]."""
        row_K = mx.where(mx.arange(self.room) < self.patches, mx.array(0.0, dtype), mx.array(HIDDEN, dtype))
        return mx.broadcast_to(row_K, (1, 1, self.patches, self.room))
