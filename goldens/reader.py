"""Reading a golden: sealed, listed and checked before anything of it is believed."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np

from goldens import diagnose, guard, seal
from goldens.errors import GoldenError
from goldens.layout import LISTING, MANIFEST, from_storage, tensor_path
from goldens.listing import Entry, Listing, Recorded, manifest_from, text_digest


@dataclass(frozen=True)
class Record:
    """One occurrence of a stage as the oracle ran it.

    Attributes:
        ins: what the stage took, by name.
        outs: what it gave, by name.
        wide: (wide reference - output) rounded to bfloat16, by output name, for the outputs that have one.
        noise: ``{output: {"forced": rms, "free": rms or None, "kind": "float64" | "float32"}}``.
    """

    ins: dict[str, np.ndarray]
    outs: dict[str, np.ndarray]
    wide: dict[str, np.ndarray]
    noise: dict[str, dict[str, Any]]

    def reference(self, name: str) -> np.ndarray:
        """The wide reference of an output, in float64: the output plus its recorded difference.

        Raises:
            KeyError: the output has none.
        """
        difference = self.wide[name].astype(np.float64)
        return self.outs[name].astype(np.float64) + difference


class Golden:
    """An open golden. Use it as a context manager, or close it.

    Attributes:
        path: the file.
        manifest: its provenance.
        sha256: digest of the whole content (the seal's), a key for anything derived from it.
    """

    def __init__(self, path: Path, sha256: str, file: h5py.File, manifest: dict[str, Any], listing: Listing) -> None:
        self.path = path
        self.sha256 = sha256
        self.manifest = manifest
        self._file = file
        self._listing = listing
        self._bytes = path.stat().st_size

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a golden, once its seal, its links and its listing are as they should be.

        Raises:
            GoldenError: it is missing, or is not exactly what its recorder wrote; the error names the cause.
        """
        path = Path(path)
        try:
            before = _identity(path)
            mark = _check_seal(path)
            file = guard.open_file(path)
        except OSError as error:
            raise GoldenError(f"cannot be read: {error.strerror}", path) from error
        try:
            _check_same(path, before)
            return cls(path, mark.sha256, file, *_contents(file, mark))
        except GoldenError as error:
            file.close()
            raise GoldenError(error.cause, path) from error

    def stages(self) -> list[str]:
        """The recorded stages, in the order of their first record."""
        return list(dict.fromkeys(stage for stage, _ in self._listing.records))

    def occurrences(self, stage: str) -> list[str]:
        """The recorded occurrences of a stage, in recorded order; none when it is not recorded."""
        return [occurrence for name, occurrence in self._listing.records if name == stage]

    def read(self, stage: str, occurrence: str) -> Record:
        """One record, in fresh writable arrays.

        Raises:
            GoldenError: it is not recorded, or a dataset is not what the listing says.
        """
        record = self._record(stage, occurrence)
        sides = {
            side: {
                name: self._tensor(tensor_path(stage, occurrence, side, name), entry) for name, entry in tensors.items()
            }
            for side, tensors in record.sides.items()
        }
        noise = {name: dict(value) for name, value in record.noise.items()}
        return Record(sides["in"], sides["out"], sides["wide"], noise)

    def shapes(self, stage: str, occurrence: str) -> dict[str, dict[str, tuple[str, tuple[int, ...]]]]:
        """(dtype, shape) by side (``in``, ``out``, ``wide``) and tensor name, without reading a tensor.

        Raises:
            GoldenError: it is not recorded.
        """
        sides = self._record(stage, occurrence).sides
        return {side: {name: (e.dtype, e.shape) for name, e in tensors.items()} for side, tensors in sides.items()}

    def digest(self, stage: str) -> str:
        """One digest of everything recorded of a stage; needs no tensor to be read."""
        return text_digest("".join(f"{path} {sha}\n" for path, sha in self._listing.payload(stage).items()))

    def payload(self) -> dict[str, str]:
        """SHA-256 by path of every recorded tensor, and of each record's noise (``<stage>/<occurrence>/noise``)."""
        return self._listing.payload()

    def check(self) -> None:
        """Read every tensor and hold it, and the attributes a plain HDF5 reader sees, to the listing.

        Raises:
            GoldenError: names the first tensor that differs.
        """
        for path, entry in self._listing.paths():
            try:
                guard.check(self._file, path, entry, self._bytes)
            except GoldenError as error:
                raise GoldenError(error.cause, self.path) from error

    def close(self) -> None:
        """Close the file. Records already read stay valid."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _record(self, stage: str, occurrence: str) -> Recorded:
        try:
            return self._listing.records[stage, occurrence]
        except KeyError:
            raise GoldenError(f"{stage}[{occurrence}] is not recorded", self.path) from None

    def _tensor(self, path: str, entry: Entry) -> np.ndarray:
        try:
            return from_storage(entry.dtype, guard.read(self._file, path, entry.dtype, entry.shape, self._bytes))
        except GoldenError as error:
            raise GoldenError(error.cause, self.path) from error


def verify(path: Path | str) -> None:
    """Read and check everything in a golden.

    Raises:
        GoldenError: names the first thing that is not as recorded.
    """
    with Golden.open(path) as golden:
        golden.check()


def _identity(path: Path) -> tuple[int, int, int, int]:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise GoldenError("it is not a regular file", path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _check_same(path: Path, before: tuple[int, int, int, int]) -> None:
    if _identity(path) != before:
        raise GoldenError("it was replaced while it was being opened; try again")


def _check_seal(path: Path) -> seal.Seal:
    with path.open("rb") as file:
        mark = seal.parse(file.read(seal.SEAL_BYTES))
        if mark is not None and os.fstat(file.fileno()).st_size == mark.size and seal.digest(file) == mark.sha256:
            return mark
    raise GoldenError(diagnose.explain(path), path)


def _contents(file: h5py.File, mark: seal.Seal) -> tuple[dict[str, Any], Listing]:
    found = guard.links(file)
    text = guard.read_text(file, LISTING, mark.size)
    if text_digest(text) != mark.listing:
        raise GoldenError("its listing is not the one that was sealed")
    listing = Listing.from_json(text)
    guard.check_links(found, {path for path, _ in listing.paths()})
    text = guard.read_text(file, MANIFEST, mark.size)
    if text_digest(text) != mark.manifest:
        raise GoldenError("its manifest is not the one that was sealed")
    manifest = manifest_from(text)
    if manifest.get("port_imported") is not False:
        raise GoldenError("its recorder had imported `port`, or does not say: it is no record of the oracle alone")
    return manifest, listing
