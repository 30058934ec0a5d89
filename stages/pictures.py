"""Drawn pictures, as the bytes of PNG files that are the same on every platform.

Integers only, and no compressor: PNG's stored blocks need none, and compressors differ between builds of zlib.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goldens.nano.shapes import plain

Pixels = NDArray[Any]
STORED = 65535  # bytes that one stored block holds


def png(pixels: Pixels, colours: int, extra: tuple[tuple[bytes, bytes], ...] = ()) -> Pixels:
    """A PNG file as uint8 [bytes].

    Args:
        pixels: uint8 or uint16, [y, x] or [y, x, channels].
        colours: PNG's colour type: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA.
        extra: chunks between header and pixels, as (type, content).
    """
    height, width = pixels.shape[:2]
    depth = 8 * pixels.dtype.itemsize
    rows = pixels.astype(pixels.dtype.newbyteorder(">")).reshape(height, -1).view(np.uint8)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, 0)
    chunks = ((b"IHDR", header), *extra, (b"IDAT", _stored(lines)), (b"IEND", b""))
    return np.frombuffer(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks), np.uint8)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _stored(raw: bytes) -> bytes:
    """A zlib stream (RFC 1950, 1951) that compresses nothing."""
    blocks = [raw[start : start + STORED] for start in range(0, len(raw), STORED)]
    framed = [
        struct.pack("<BHH", i == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for i, block in enumerate(blocks)
    ]
    return b"\x78\x01" + b"".join(framed) + struct.pack(">I", zlib.adler32(raw))


def shapes(height: int = 23, width: int = 40, channels: int = 3) -> Pixels:
    """A bright frame, a red block, a blue one that fades downwards and a green diagonal: no symmetry, no grey."""
    y, x = np.indices((height, width))
    drawn = np.full((height, width, channels), 200, np.uint8)
    drawn[..., :3] = (230, 200, 120)
    drawn[height // 4 : height // 2, width // 8 : width // 3, :3] = (210, 20, 40)
    fade = (y * 5 * 40 // height).astype(np.uint8)
    right = x > 2 * width // 3
    drawn[right] = np.stack([fade, fade // 2, 250 - fade // 4, *[fade + 30] * (channels - 3)], axis=-1)[right]
    drawn[np.abs(x * height - y * width) < height, :3] = (30, 180, 60)
    return drawn


def bright() -> Pixels:
    """White shapes on colours that are nowhere black, so that no backend's cast of -1 to unsigned is looked at."""
    drawn = np.maximum(shapes(30, 44), 100)  # bicubic undershoots
    drawn[4:13, 10:33] = 255
    drawn[20:26, 2:9] = 255
    drawn[15:28, 30:36, 0] = 255
    return drawn


def _shown() -> Pixels:
    return png(shapes(), 2)


def _strip() -> Pixels:
    """Forty times as wide as it is high."""
    return png(shapes(4, 160), 2)


def _tall() -> Pixels:
    """With an alpha channel, which is dropped."""
    return png(shapes(70, 31, 4), 6)


def _palette() -> Pixels:
    """Indices into a palette of which some entries are transparent."""
    y, x = np.indices((20, 28))
    entries = np.array([[250, 250, 250], [200, 30, 30], [40, 60, 220], [240, 220, 30]], np.uint8)
    extra = ((b"PLTE", entries.tobytes()), (b"tRNS", bytes((255, 128, 0))))
    return png(((x // 7 + y // 5) % 4).astype(np.uint8), 3, extra)


def _grey() -> Pixels:
    """Sixteen bits of grey."""
    y, x = np.indices((33, 20))
    return png((x * 3000 + y * 100).astype(np.uint16), 0)


def _bright() -> Pixels:
    return png(bright(), 2)


def _taught(colour: str, shape: str) -> Callable[[], Pixels]:
    """A picture of the sort that the trained nano has learned to name."""
    return lambda: png(plain(colour, shape, 48).draw(), 2)


FILES: dict[str, Callable[[], Pixels]] = {
    "blue circle": _taught("blue", "circle"),
    "bright": _bright,
    "green triangle": _taught("green", "triangle"),
    "grey": _grey,
    "palette": _palette,
    "red circle": _taught("red", "circle"),
    "red square": _taught("red", "square"),
    "shapes": _shown,
    "strip": _strip,
    "tall": _tall,
    "yellow square": _taught("yellow", "square"),
}
