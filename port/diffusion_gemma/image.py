"""A picture as the tower gets it: resized in its own proportions to fill a budget of soft tokens, scaled to [0, 1].

Source: mlx-optiq 0.7.7, `vlm/gemma4/image_processing.py`.

Legend: H, W height and width in pixels after resizing, both whole numbers of blocks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from PIL import Image

from port.errors import PictureError

BUDGETS = (70, 140, 280, 560, 1120)  # soft tokens that a picture may take, as published
BUDGET = 280
PATCH = 16  # pixels a side
POOL = 3  # patches a side of a soft token
BLOCK = PATCH * POOL


@dataclass(frozen=True)
class Pixels:
    """A prepared picture.

    Attributes:
        values: float32 [3, H, W] in [0, 1].
    """

    values: np.ndarray

    @property
    def soft_tokens(self) -> int:
        """Places that it takes in the prompt."""
        _, height, width = self.values.shape
        return (height // PATCH) * (width // PATCH) // POOL**2


def target_size(width: int, height: int, budget: int = BUDGET) -> tuple[int, int]:
    """The size that a picture is resized to.

    Args:
        width: in pixels, at least 1.
        height: likewise.
        budget: soft tokens, at least 2.

    Returns:
        width and height in pixels, multiples of `BLOCK`, of which at most `budget` fit.
    """
    factor = math.sqrt(budget * POOL**2 * PATCH**2 / (height * width))
    rows, columns = math.floor(factor * height / BLOCK), math.floor(factor * width / BLOCK)
    # A picture so long that its short side would vanish keeps one block there, and as many as are due along the other.
    if rows == 0:
        rows, columns = 1, min(math.floor(width / height), budget)
    elif columns == 0:
        rows, columns = min(math.floor(height / width), budget), 1
    return columns * BLOCK, rows * BLOCK


def prepare(picture: Image.Image, budget: int = BUDGET) -> Pixels:
    """Resize and rescale an RGB picture; mean and deviation are left alone.

    Args:
        picture: 8 bits a channel, RGB.
        budget: soft tokens that it may take.
    """
    size = target_size(*picture.size, budget)
    if size != picture.size:
        picture = picture.resize(size, resample=Image.Resampling.BICUBIC)
    values = np.asarray(picture, dtype=np.float32) * (1.0 / 255.0)
    return Pixels(values.transpose(2, 0, 1))


def batch(pictures: Sequence[Pixels]) -> list[mx.array]:
    """Prepared pictures as the tower takes them, each bfloat16 [1, 3, H, W] whatever the compute dtype.

    The reference's door rounds pixels to bfloat16 before anything else looks at them.
    """
    return [mx.array(picture.values[None]).astype(mx.bfloat16) for picture in pictures]


def check_budget(budget: int) -> int:
    """A budget that the model was made for.

    Raises:
        PictureError: it is another.
    """
    if budget not in BUDGETS:
        raise PictureError(
            "soft tokens a picture",
            found=f"the budget is {budget}",
            expected=f"one of {', '.join(map(str, BUDGETS))}",
            mend=f"leave it out: the default is {BUDGET}",
        )
    return budget
