"""What the trained nano is taught to see: coloured shapes, and short questions about them.

`python -m goldens.nano.shapes OUT` writes a PNG file a picture, and `lessons.jsonl` of one JSON object a line with
`kind`, `prompt`, `answer`, `held`, and `pictures`, the files shown before the prompt. Every colour is taught in every
shape; what is held back are pictures, and so sizes, places, shades and grounds.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from PIL import Image

SEED = 20252
COLOURS = {
    "red": (225, 30, 30),
    "green": (30, 165, 50),
    "blue": (30, 50, 225),
    "yellow": (225, 215, 30),
    "black": (25, 25, 25),
}
SHAPES = ("square", "circle", "triangle")
EACH = 110  # pictures of each colour and shape
HELD = 10  # of them left out of training
SHADE = 25  # how far a colour's channels wander
ROWS = 240  # lessons that show two or three pictures
PLACES = ("first", "second", "third")


@dataclass(frozen=True)
class Shape:
    """A picture: one shape on a light ground.

    Attributes:
        colour: its name.
        shape: its name.
        size: pixels a side of the whole picture, which is square.
        centre: column and row of the shape's centre.
        reach: pixels from the centre to its edge.
        ink: red, green and blue of the shape.
        ground: likewise of all else.
    """

    colour: str
    shape: str
    size: int
    centre: tuple[int, int]
    reach: int
    ink: tuple[int, int, int]
    ground: tuple[int, int, int]

    def draw(self) -> NDArray[Any]:
        """Uint8 [size, size, 3]; integers only, so the same everywhere."""
        y, x = np.indices((self.size, self.size))
        right, down = x - self.centre[0], y - self.centre[1]
        inside = {
            "square": np.maximum(abs(right), abs(down)) <= self.reach,
            "circle": right**2 + down**2 <= self.reach**2,
            "triangle": (2 * abs(right) <= down + self.reach) & (down <= self.reach),
        }[self.shape]
        return np.where(inside[..., None], np.array(self.ink), np.array(self.ground)).astype(np.uint8)


@dataclass(frozen=True)
class PictureLesson:
    """A question about pictures, without the template's turns, and the answer to it."""

    kind: str
    prompt: str
    answer: str
    held: bool
    pictures: tuple[str, ...]


def shapes() -> list[Shape]:
    """All pictures, in a fixed order: of each colour and shape `EACH`, the last `HELD` of which are held back."""
    rng = np.random.default_rng(SEED)
    return [_drawn(rng, *pair) for pair in itertools.product(COLOURS, SHAPES) for _ in range(EACH)]


def plain(colour: str, shape: str, size: int = 96) -> Shape:
    """The shape in the middle of a white picture, in its colour's own shade."""
    return Shape(colour, shape, size, (size // 2, size // 2), size // 4, COLOURS[colour], (255, 255, 255))


def _drawn(rng: np.random.Generator, colour: str, shape: str) -> Shape:
    size = int(rng.integers(48, 121))
    reach = int(rng.integers(size // 6, size // 3 + 1))
    x, y = (int(i) for i in rng.integers(reach + 2, size - reach - 2, 2))
    wander = rng.integers(-SHADE, SHADE + 1, 3)
    red, green, blue = (int(i) for i in np.array(COLOURS[colour]) + wander)
    light = int(rng.integers(205, 256))
    return Shape(colour, shape, size, (x, y), reach, (red, green, blue), (light, light, light))


def name(number: int) -> str:
    """The file of a picture by its number."""
    return f"{number:04d}.png"


def lessons(drawn: list[Shape]) -> Iterator[PictureLesson]:
    """All lessons about these pictures, in a fixed order."""
    rng = np.random.default_rng(SEED + 1)
    for number, one in enumerate(drawn):
        held, files = _held(number), (name(number),)
        yield PictureLesson("what", "What is this?", f"A {one.colour} {one.shape}.", held, files)
        yield PictureLesson("colour", "What colour is it?", f"It is {one.colour}.", held, files)
        yield PictureLesson("shape", "What shape is it?", f"It is a {one.shape}.", held, files)
    taught, left = ([i for i in range(len(drawn)) if _held(i) == held] for held in (False, True))
    for row in range(ROWS):
        held = row % 12 == 11
        numbers = [int(i) for i in rng.choice(left if held else taught, 2 + row % 2, replace=False)]
        for place, number in zip(PLACES, numbers, strict=False):
            one = drawn[number]
            answer = f"A {one.colour} {one.shape}."
            yield PictureLesson("row", f"What is the {place}?", answer, held, tuple(name(i) for i in numbers))


def _held(number: int) -> bool:
    return number % EACH >= EACH - HELD


@click.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
def main(out: Path) -> None:
    """Write all pictures and lessons into OUT, made if absent."""
    out.mkdir(parents=True, exist_ok=True)
    drawn = shapes()
    for number, one in enumerate(drawn):
        Image.fromarray(one.draw()).save(out / name(number))
    made = list(lessons(drawn))
    lines = "".join(json.dumps(asdict(lesson)) + "\n" for lesson in made)
    (out / "lessons.jsonl").write_text(lines, encoding="utf-8")
    held = sum(lesson.held for lesson in made)
    click.echo(f"{len(drawn)} pictures and {len(made)} lessons in {out}, of which {held} are left out of training")


if __name__ == "__main__":
    main()
