"""Recording a golden: beside the target, manifest last, sealed, flushed, renamed. It is whole or absent."""

import fcntl
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from goldens import seal
from goldens.container import attach, create_dataset, create_file, create_group
from goldens.errors import GoldenError
from goldens.guard import HDF5_ERRORS
from goldens.layout import (
    BFLOAT16,
    CHUNK_COST,
    COMPACT_BYTES,
    LISTING,
    MANIFEST,
    TEXT_BYTES,
    Array,
    check_names,
    check_ratio,
    pack,
    tensor_digest,
    tensor_path,
    to_storage,
)
from goldens.listing import Entry, Listing, Recorded, check_noise, field_digests, text_digest, to_text

SUFFIX = ".recording"


class Writer:
    """Puts records into a golden that does not exist yet; made by ``writing``.

    Attributes:
        manifest: the provenance; written last, so it may be completed while recording.
    """

    def __init__(self, path: Path, file: h5py.File, manifest: dict[str, Any]) -> None:
        self.manifest = manifest
        self._path = path
        self._file = file
        self._listing = Listing()
        self._groups: dict[str, Any] = {"": file.id}
        self._homes: dict[Entry, str] = {}
        self._half_put = ""

    def put(
        self,
        stage: str,
        occurrence: str,
        ins: Mapping[str, Array],
        outs: Mapping[str, Array],
        *,
        wide: Mapping[str, Array] | None = None,
        noise: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Record one occurrence of a stage. Bits are kept; nothing is kept of the arrays themselves.

        Args:
            stage: the stage's name.
            occurrence: segments joined by ``/``, e.g. ``canvas=0/step=2/layer=3``.
            ins: what the stage took, any shapes, dtypes of ``layout.DTYPES``.
            outs: what it gave, at least one tensor.
            wide: (wide reference - output) by output name, same shape as the output; rounded to bfloat16 here.
            noise: ``{output: {"forced": rms, "free": rms or None, "kind": "float64" | "float32"}}``.

        Raises:
            GoldenError: a name, dtype, shape or number that a golden does not hold, or a record put twice.
        """
        what = f"{stage}[{occurrence}]"
        wide = wide or {}
        self._refuse_half()
        if (stage, occurrence) in self._listing.records:
            raise GoldenError(f"{what} is recorded twice", self._path)
        if not outs:
            raise GoldenError(f"{what} gives no tensor: there would be nothing to compare", self._path)
        with _reporting(self._path):
            check_names(stage, occurrence, [*ins, *outs])
            deltas = {name: _delta(f"{what}.{name}", delta, outs.get(name)) for name, delta in wide.items()}
            self._half_put = what
            record = Recorded({"in": {}, "out": {}, "wide": {}}, {})
            for side, tensors in (("in", ins), ("out", outs), ("wide", deltas)):
                for name, tensor in tensors.items():
                    record.sides[side][name] = self._store(tensor_path(stage, occurrence, side, name), tensor)
            record.noise = check_noise(what, {name: dict(value) for name, value in (noise or {}).items()}, record.sides)
        self._listing.records[stage, occurrence] = record
        self._half_put = ""

    def finish(self) -> tuple[str, str]:
        """Write the listing and, last, the manifest; gives the digests of the manifest's and the listing's text.

        Raises:
            GoldenError: nothing was recorded, this process imported the port, or the manifest is not JSON.
        """
        self._refuse_half()
        if not self._listing.records:
            raise GoldenError("nothing was recorded", self._path)
        _refuse_port(self._path)
        self.manifest["port_imported"] = False
        try:
            text = to_text(self.manifest)
            self._listing.manifest = field_digests(self.manifest)
        except (TypeError, ValueError) as error:
            raise GoldenError(f"the manifest is not JSON: {error}", self._path) from error
        listing = self._listing.to_json()
        for path, content in ((LISTING, listing), (MANIFEST, text)):
            raw = np.frombuffer(content.encode(), np.uint8)
            if raw.size > TEXT_BYTES:
                raise GoldenError(f"the {path} has {raw.size} bytes, the limit is {TEXT_BYTES}", self._path)
            self._create(path, "uint8", raw, None)
        return text_digest(text), text_digest(listing)

    def _refuse_half(self) -> None:
        if self._half_put:
            raise GoldenError(f"{self._half_put} was put only in part", self._path)

    def _store(self, path: str, tensor: Array) -> Entry:
        dtype, storage = to_storage(path, tensor)
        entry = Entry(dtype, storage.shape, tensor_digest(dtype, storage))
        home = self._homes.setdefault(entry, path)
        if home == path:
            self._create(path, dtype, storage, entry.sha256)
        else:
            parent, _, name = path.rpartition("/")
            self._group(parent).links.create_hard(name.encode(), self._file.id, home.encode())
        return entry

    def _create(self, path: str, dtype: str, storage: np.ndarray, sha256: str | None) -> None:
        packed = pack(storage) if storage.size and storage.shape else None
        if packed is not None:
            check_ratio(path, storage.nbytes, len(packed))
            if storage.nbytes <= min(COMPACT_BYTES, len(packed) + CHUNK_COST):
                packed = None
        parent, _, name = path.rpartition("/")
        dataset = create_dataset(self._group(parent), name, dtype, storage, packed)
        if dtype == "bfloat16":
            attach(dataset, "dtype", dtype)
        if sha256 is not None:
            attach(dataset, "sha256", sha256)

    def _group(self, path: str) -> Any:
        if path not in self._groups:
            parent, _, name = path.rpartition("/")
            self._groups[path] = create_group(self._group(parent), name)
        return self._groups[path]


@contextmanager
def writing(path: Path | str, manifest: dict[str, Any]) -> Iterator[Writer]:
    """Record a golden at ``path``; it appears there when the block ends without an error, and not before.

    A golden already there stays until then. What recorders that were killed left in the folder is removed.

    Args:
        path: the golden; its folder is made if needed.
        manifest: provenance (``goldens.manifest.collect``); ``port_imported: false`` is added.

    Raises:
        GoldenError: the file cannot be written, or this process imported ``port``: what is recorded there is not
            known to come from the oracle alone.
    """
    path = Path(path)
    _refuse_port(path)
    with _reporting(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary, lock = _claim(path)
    try:
        with create_file(temporary, seal.SEAL_BYTES) as file:
            writer = Writer(path, file, dict(manifest))
            yield writer
            with _reporting(path):
                digests = writer.finish()
                file.close()
                seal.apply(temporary, *digests)
                temporary.replace(path)
                _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(lock)


@contextmanager
def _reporting(path: Path) -> Iterator[None]:
    """Turn what the system or HDF5 refuses into an error that names the golden."""
    try:
        yield
    except GoldenError as error:
        raise GoldenError(error.cause, path) from error
    except HDF5_ERRORS as error:
        raise GoldenError(f"cannot be written: {error}", path) from error


def _claim(path: Path) -> tuple[Path, int]:
    """A new temporary file beside ``path``, locked while its recorder lives; the dead ones' files are removed.

    The locks are the kernel's (flock) and end with their process, however it ends. The folder is locked meanwhile,
    so that no file is seen between its creation and its locking.
    """
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        for leftover in path.parent.glob(f".*{SUFFIX}"):
            with suppress(FileNotFoundError):
                _remove_if_dead(leftover)
        temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}{SUFFIX}"
        lock = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        fcntl.flock(lock, fcntl.LOCK_EX)
    finally:
        os.close(folder)
    return temporary, lock


def _remove_if_dead(leftover: Path) -> None:
    descriptor = os.open(leftover, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        leftover.unlink()
    except BlockingIOError:
        return  # its recorder is alive
    finally:
        os.close(descriptor)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_port(path: Path) -> None:
    if "port" in sys.modules:
        raise GoldenError("this process imported `port`, which a recorder of the oracle must not", path)


def _delta(what: str, delta: Array, out: Array | None) -> np.ndarray:
    if out is None:
        raise GoldenError(f"{what} has a wide reference but is not an output")
    if np.shape(delta) != np.shape(out):
        raise GoldenError(f"the wide reference of {what} has the shape {np.shape(delta)}, the output {np.shape(out)}")
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return np.asarray(delta).astype(BFLOAT16)
