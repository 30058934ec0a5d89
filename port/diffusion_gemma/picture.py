"""Picture files, opened with suspicion: whatever is wrong with one is said by name before it can take memory."""

import warnings
from pathlib import Path
from typing import BinaryIO

from PIL import Image, UnidentifiedImageError

from port.errors import PictureError

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "PPM", "TIFF")
PIXELS = 2**26  # three bytes each while decoded: 201 MB
BYTES = 2**27
_MEND = "give another file, or convert it: magick IN -resize 2048x2048 OUT.png"


def read(source: Path | BinaryIO, name: str = "") -> Image.Image:
    """Open and decode a picture.

    The header is looked at first: no pixel is decoded of a picture that is too large, empty or animated. Orientation
    tags are not followed and transparency is dropped rather than blended, both as in the reference (mlx-optiq,
    `vlm/gemma4/image_processing.py`).

    Args:
        source: a path, or an open file.
        name: what errors call it; the path by default.

    Returns:
        an RGB picture, 8 bits a channel.

    Raises:
        PictureError: it is absent, no picture, truncated, empty, animated, or larger than `PIXELS` or `BYTES`.
    """
    where = name or str(source)
    try:
        with warnings.catch_warnings():
            # Pillow warns of palettes whose transparency is dropped; of bombs it warns where it does not refuse.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            _check_size(source, where)
            with Image.open(source, formats=FORMATS) as opened:
                _check_header(opened, where)
                return opened.convert("RGB")
    except PictureError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _refuse(where, f"its header announces a decompression bomb ({error})", _limit()) from error
    except UnidentifiedImageError as error:
        raise _refuse(where, "it is no picture", f"one of {', '.join(FORMATS)}") from error
    except MemoryError as error:
        raise _refuse(where, "it does not fit into memory", _limit()) from error
    except FileNotFoundError as error:
        raise _refuse(where, "it is not there", "a file") from error
    except Exception as error:  # decoders raise whatever they trip over: OSError, SyntaxError, struct.error, ...
        raise _refuse(where, f"it is damaged or cannot be read ({error})", "a whole picture") from error


def _check_size(source: Path | BinaryIO, where: str) -> None:
    if isinstance(source, Path):
        size = source.stat().st_size
    else:
        start = source.tell()
        size = source.seek(0, 2) - start
        source.seek(start)
    if size > BYTES:
        raise _refuse(where, f"the file has {size:,} bytes", f"at most {BYTES:,}")


def _check_header(opened: Image.Image, where: str) -> None:
    width, height = opened.size
    if width * height > PIXELS:
        raise _refuse(where, f"it is {width} x {height} pixels", _limit())
    if getattr(opened, "is_animated", False):
        raise _refuse(where, "it has several frames", "a still picture")


def _limit() -> str:
    return f"at most {PIXELS:,} pixels"


def _refuse(where: str, found: str, expected: str) -> PictureError:
    return PictureError(where, found=found, expected=expected, mend=_MEND)
