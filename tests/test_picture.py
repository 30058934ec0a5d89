"""Files that are no pictures, or none that may be opened: refused by name, in bounded memory, before any pixel."""

import io
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from pictures import folder, ramp, saved
from PIL import Image

from port.diffusion_gemma import picture
from port.errors import PictureError

Files = dict[str, tuple[Callable[[], bytes], str]]


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def one_bit_png(width: int, height: int) -> bytes:
    """A whole PNG of black pixels, one bit each."""
    packer = zlib.compressobj(9)
    line = b"\0" * (1 + (width + 7) // 8)
    data = b"".join(packer.compress(line) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def animated(kind: str) -> bytes:
    frames = [ramp(20, 20 + i).resize((20, 20)) for i in range(3)]
    return saved(frames[0].quantize(16), kind, save_all=True, append_images=[f.quantize(16) for f in frames[1:]])


BAD: Files = {
    "truncated.jpg": (lambda: (folder() / "rocket.jpg").read_bytes()[:40_000], "truncated"),
    "truncated.png": (lambda: saved(ramp(200, 200), "PNG")[:-400], "damaged|truncated"),
    "notes.png": (lambda: b"This is a shopping list.\n" * 20, "it is no picture"),
    "empty.png": (lambda: b"", "it is no picture"),
    "vector.svg": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>", "it is no picture"),
    "bomb.png": (lambda: one_bit_png(20_000, 20_000), "decompression bomb"),
    "30000.png": (lambda: one_bit_png(30_000, 30_000), "decompression bomb"),
    "large.png": (lambda: one_bit_png(9_000, 9_000), "9000 x 9000 pixels"),
    "nothing.ppm": (lambda: b"P6 0 0 255\n", "0|no picture|damaged"),
    "nothing.png": (lambda: one_bit_png(0, 0), "0 x 0|no picture|damaged"),
    "moving.gif": (lambda: animated("GIF"), "several frames"),
    "moving.png": (lambda: animated("PNG"), "several frames"),
    "moving.webp": (lambda: animated("WEBP"), "several frames"),
}


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("bad")
    for name, (make, _) in BAD.items():
        (where / name).write_bytes(make())
    return where


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said_with_the_name_of_the_file(bad: Path, name: str) -> None:
    with pytest.raises(PictureError, match=BAD[name][1]) as refused:
        picture.read(bad / name)
    assert str(refused.value).startswith(f"{bad / name}: ")
    assert "Expected: " in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PictureError, match="it is not there"):
        picture.read(tmp_path / "absent.png")
    with pytest.raises(PictureError, match="directory"):
        picture.read(tmp_path)


def test_a_file_larger_than_any_picture_is_not_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge.png"
    huge.touch()
    with huge.open("r+b") as file:
        file.truncate(picture.BYTES + 1)
    with pytest.raises(PictureError, match="the file has 134,217,729 bytes"):
        picture.read(huge)


def test_an_open_file_is_as_good_as_a_path() -> None:
    file = saved(ramp(30, 20), "PNG")
    assert picture.read(io.BytesIO(file), "sent").size == (20, 30)
    with pytest.raises(PictureError, match=r"^sent: it is no picture"):
        picture.read(io.BytesIO(b"text"), "sent")


MEASURED = """
import resource, sys
from pathlib import Path
from port.diffusion_gemma import picture
from port.errors import PictureError
refused = 0
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        picture.read(path)
    except PictureError:
        refused += 1
print(refused, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_stays_bounded(bad: Path) -> None:
    child = subprocess.run([sys.executable, "-c", MEASURED, str(bad)], capture_output=True, text=True, check=True)
    refused, grown = map(int, child.stdout.split())
    kilobytes = grown // (1024 if sys.platform == "darwin" else 1)  # ru_maxrss counts bytes there
    assert refused == len(BAD)
    assert kilobytes < 64 * 1024  # 30000 x 30000 decoded would be 2.7 GB


def test_the_largest_picture_that_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    path.write_bytes(one_bit_png(8192, 8192))
    assert picture.PIXELS == 8192 * 8192
    with Image.open(path) as opened:
        picture._check_header(opened, "large.png")
