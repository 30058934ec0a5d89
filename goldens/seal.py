"""The seal of a golden: 512 bytes before the HDF5 data that say what the rest must hash to.

The seal is checked before the HDF5 library reads a byte, so a flipped bit anywhere, the zero padding of the seal
included, is refused by this short parser and not by a large one.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader
from pathlib import Path

SEAL_BYTES = 512
MAGIC = b"lockstep golden 1\n"

_FORM = re.compile(
    MAGIC + rb"sha256 ([0-9a-f]{64})\nsize ([1-9][0-9]{0,17})\nmanifest ([0-9a-f]{64})\nlisting ([0-9a-f]{64})\n\0+"
)


@dataclass(frozen=True)
class Seal:
    """What a golden must be.

    Attributes:
        sha256: hex digest of everything after the seal.
        size: bytes of the whole file.
        manifest: hex digest of the manifest's JSON text.
        listing: hex digest of the listing's JSON text.
    """

    sha256: str
    size: int
    manifest: str
    listing: str

    def render(self) -> bytes:
        """The 512 bytes, zero padded."""
        fields = f"sha256 {self.sha256}\nsize {self.size}\nmanifest {self.manifest}\nlisting {self.listing}\n"
        return (MAGIC + fields.encode()).ljust(SEAL_BYTES, b"\0")


def parse(block: bytes) -> Seal | None:
    """The seal that renders to exactly these bytes, or None when there is none."""
    found = _FORM.fullmatch(block) if len(block) == SEAL_BYTES else None
    if found is None:
        return None
    sha256, size, manifest, listing = (group.decode() for group in found.groups())
    return Seal(sha256, int(size), manifest, listing)


def digest(file: BufferedReader | BufferedRandom) -> str:
    """SHA-256 of everything after the seal."""
    file.seek(SEAL_BYTES)
    return hashlib.file_digest(file, "sha256").hexdigest()


def apply(path: Path, manifest: str, listing: str) -> Seal:
    """Seal the finished HDF5 file at ``path`` (which keeps 512 bytes free in front) and flush it to the disk.

    Args:
        path: the file, closed by everyone else.
        manifest: hex digest of its manifest's text.
        listing: hex digest of its listing's text.
    """
    with path.open("r+b") as file:
        sha256 = digest(file)
        seal = Seal(sha256, file.tell(), manifest, listing)
        file.seek(0)
        file.write(seal.render())
        file.flush()
        os.fsync(file.fileno())
    return seal
