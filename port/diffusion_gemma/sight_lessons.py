"""Lessons about pictures, as batches whose prompts show them.

Legend: B batch, T prompt tokens, C canvas tokens, H, W pixels.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from PIL import Image

from port.errors import PortError

from . import image, picture, splice
from .batches import Batch, Ids, answer_of, collate, pick
from .config import ModelConfig
from .tokens import Tokens

# A batch: how often, of which kind, how many soft tokens a picture at most, how many lessons.
SORTS = (
    (0.5, ("what", "colour", "shape"), 12, 16),
    (0.1, ("what", "colour", "shape"), 6, 16),
    (0.2, ("what", "colour", "shape"), 70, 6),
    (0.2, ("row",), 6, 12),
)
CANVASES = (12, 32, 96)  # a door that is not told otherwise takes the longest


@dataclass(frozen=True)
class Shown:
    """What a batch shows: pixels, floats [pictures, 3, H, W], in order; token types, int32 [B, T]."""

    pixels: mx.array
    types: npt.NDArray[np.int32]


@dataclass(frozen=True)
class _Asked:
    prompt: str
    answer: Ids
    said: str
    pictures: tuple[Image.Image, ...]


class Gallery:
    """Lessons about pictures that are not held back, by kind.

    Args:
        folder: holds `lessons.jsonl`, one JSON object a line: `kind`, `prompt`, `answer`, `held`, `pictures`; and the
            pictures, which are square.
        tokens: the tokenizer.
        config: of the model that is taught.

    Raises:
        PortError: the folder cannot be read as lessons.
        PictureError: a picture cannot be.
    """

    def __init__(self, folder: Path, tokens: Tokens, config: ModelConfig) -> None:
        self._tokens, self._config = tokens, config
        self._eos = config.text_config.eos_token_id
        self._kinds: dict[str, list[_Asked]] = {}
        opened: dict[str, Image.Image] = {}
        try:
            rows = [json.loads(line) for line in (folder / "lessons.jsonl").read_text("utf-8").splitlines()]
            for row in rows:
                if row["held"]:
                    continue
                for name in row["pictures"]:
                    opened[name] = opened.get(name) or picture.read(folder / name)
                shown = tuple(opened[name] for name in row["pictures"])
                asked = _Asked(row["prompt"], answer_of(row["answer"], tokens), row["answer"], shown)
                self._kinds.setdefault(row["kind"], []).append(asked)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PortError(
                str(folder),
                found=f"it cannot be read as lessons about pictures ({error!r})",
                expected="lessons.jsonl, one JSON object a line with kind, prompt, answer, held and pictures",
                mend=f"python -m goldens.nano.shapes {folder}",
            ) from error
        self.answers = sorted({asked.said for asked in self._kinds["what"]})

    def draw(self, rng: np.random.Generator) -> tuple[Batch, Shown]:
        """One batch: its sort, canvas and lessons by chance."""
        _, kinds, budget, rows = SORTS[pick(rng, [sort[0] for sort in SORTS])]
        canvas = int(rng.choice(CANVASES))
        asked = [self._one(rng, kinds) for _ in range(rows if canvas < CANVASES[-1] else rows // 2)]
        prepared = [[image.prepare(one, budget) for one in lesson.pictures] for lesson in asked]
        spliced = [
            splice.prompt(self._tokens, self._config, lesson.prompt, [one.soft_tokens for one in shown])
            for lesson, shown in zip(asked, prepared, strict=True)
        ]
        pairs = [(ids.tolist(), lesson.answer[:canvas]) for (ids, _), lesson in zip(spliced, asked, strict=True)]
        batch = collate(pairs, canvas, self._eos)
        pixels = _stacked([one for shown in prepared for one in shown])
        image_id = self._config.image_token_id
        return batch, Shown(pixels, (batch.prompt == image_id).astype(np.int32) * splice.IMAGE)

    def named(self, rng: np.random.Generator) -> tuple[mx.array, mx.array]:
        """Pixels [B, 3, H, W] of single pictures, and the number of each one's answer to `what`, int32 [B]."""
        _, _, budget, rows = SORTS[pick(rng, [sort[0] for sort in SORTS[:-1]])]
        asked = [self._one(rng, ("what",)) for _ in range(2 * rows)]
        pixels = _stacked([image.prepare(lesson.pictures[0], budget) for lesson in asked])
        return pixels, mx.array([self.answers.index(lesson.said) for lesson in asked])

    def _one(self, rng: np.random.Generator, kinds: Sequence[str]) -> _Asked:
        items = self._kinds[kinds[int(rng.integers(len(kinds)))]]
        return items[int(rng.integers(len(items)))]


def _stacked(prepared: Sequence[image.Pixels]) -> mx.array:
    """Prepared pictures of one size, rounded as at the model's door, in float32: [pictures, 3, H, W]."""
    return mx.concatenate(image.batch(prepared)).astype(mx.float32)
