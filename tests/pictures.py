"""Pictures to look at: photographs that scikit-image ships, and drawn ones in every mode that files come in."""

import importlib.util
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

PHOTOGRAPHS = (
    "astronaut.png", "brick.png", "camera.png", "cell.png", "chelsea.png", "clock_motion.png", "coffee.png",
    "coins.png", "color.png", "grass.png", "gravel.png", "horse.png", "hubble_deep_field.jpg", "ihc.png", "logo.png",
    "microaneurysms.png", "moon.png", "motorcycle_left.png", "page.png", "phantom.png", "retina.jpg", "rocket.jpg",
    "text.png",
)  # fmt: skip
ORIENTATION = 0x112


def folder() -> Path:
    """Where scikit-image keeps its data; the package itself is not imported."""
    found = importlib.util.find_spec("skimage")
    assert found is not None, "the photographs are missing; mend it with: pip install -e '.[test]'"
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / "data"


def _ramp(height: int, width: int) -> np.ndarray:
    y, x = np.indices((height, width))
    return np.stack([x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), (x * 7 + y * 3) % 256], -1).astype(
        np.uint8
    )


def ramp(height: int, width: int) -> Image.Image:
    """Red rises to the right, green downwards, blue in steps."""
    return Image.fromarray(_ramp(height, width))


def words() -> Image.Image:
    page = Image.new("RGB", (300, 90), "white")
    ImageDraw.Draw(page).text((12, 30), "Lockstep 42, in black on white", fill="black")
    return page


def rotated() -> Image.Image:
    """Its tag asks for a quarter turn."""
    lying = ramp(40, 90)
    lying.getexif()[ORIENTATION] = 6
    return lying


def saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def _noise() -> Image.Image:
    return Image.fromarray(np.random.default_rng(5).integers(0, 256, (123, 77, 3), dtype=np.uint8))


def _transparent_palette() -> bytes:
    indexed = ramp(50, 60).quantize(8)
    return saved(indexed, "PNG", transparency=bytes(range(0, 256, 32)))


def _grey16() -> bytes:
    return saved(Image.fromarray((np.indices((64, 50)).sum(0) * 570).astype(np.uint16)), "PNG")


DRAWN: dict[str, Callable[[], bytes]] = {
    "black": lambda: saved(Image.new("RGB", (64, 48), "black"), "PNG"),
    "white": lambda: saved(Image.new("RGB", (48, 64), "white"), "PNG"),
    "red": lambda: saved(Image.new("RGB", (100, 100), "red"), "PNG"),
    "ramp": lambda: saved(ramp(120, 200), "PNG"),
    "ramp that needs no resizing": lambda: saved(ramp(16 * 48, 17 * 48), "PNG"),
    "words": lambda: saved(words(), "PNG"),
    "noise": lambda: saved(_noise(), "PNG"),
    "1x1": lambda: saved(Image.new("RGB", (1, 1), (9, 80, 200)), "PNG"),
    "1x5000": lambda: saved(ramp(5000, 1), "PNG"),
    "5000x1": lambda: saved(ramp(1, 5000), "PNG"),
    "2x450": lambda: saved(ramp(450, 2), "BMP"),
    "16-bit grey": _grey16,
    "8-bit grey": lambda: saved(ramp(70, 70).convert("L"), "PNG"),
    "grey with alpha": lambda: saved(ramp(70, 71).convert("LA"), "PNG"),
    "1 bit": lambda: saved(ramp(70, 72).convert("1"), "PNG"),
    "palette": lambda: saved(ramp(50, 61).quantize(16), "PNG"),
    "palette with transparency": _transparent_palette,
    "alpha": lambda: saved(Image.merge("RGBA", (*ramp(33, 44).split(), ramp(33, 44).getchannel(0))), "PNG"),
    "CMYK": lambda: saved(ramp(60, 80).convert("CMYK"), "JPEG", quality=90),
    "rotated by its tag": lambda: saved(rotated(), "JPEG", exif=rotated().getexif()),
    "progressive": lambda: saved(_noise(), "JPEG", progressive=True),
    "still GIF": lambda: saved(ramp(40, 40).quantize(32), "GIF"),
    "WebP": lambda: saved(ramp(90, 61), "WEBP", quality=80),
    "TIFF": lambda: saved(ramp(30, 31), "TIFF"),
    "PPM": lambda: saved(ramp(31, 30), "PPM"),
}


NAMES = (*PHOTOGRAPHS, *DRAWN)


def file_of(name: str) -> bytes:
    """The bytes of a picture's file."""
    return DRAWN[name]() if name in DRAWN else (folder() / name).read_bytes()
